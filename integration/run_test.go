package integration

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

// testRunConnections requires that a worker without work has few connections. During 24 s
// of heartbeats, which is longer than two polling intervals of a subscription, the worker
// must open few new connections. More of them would show that some connections are opened
// repeatedly.
func testRunConnections(t *testing.T, p program) {
	s := p.site(t, pgtest.New(t).URL, mainSetup(`
loose_foreign_keys: {definitions: [loose_foreign_keys.yml]}
ghost_users: {enabled: true}
placeholder_users: {enabled: true}
adjourned_groups: {enabled: true}
external_diffs: {enabled: true, bucket: "file://`+t.TempDir()+`"}
`, exampleapp.Schema(), "").withDefinitions("notes:\n  - {table: issues, column: noteable_id, on_delete: async_delete}\n"))
	const few = "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'sexton%') <= $1"
	requireFewNewSessions := func() {
		t.Helper()
		const opened = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()"
		before, since := s.count(t, opened), s.count(t,
			"SELECT extract(epoch FROM max(seen_at))::bigint FROM sexton.clients")
		s.wait(t, 2*time.Minute, "24 s of heartbeats",
			"(SELECT extract(epoch FROM max(seen_at)) FROM sexton.clients) > $1 + 24", since)
		require.LessOrEqual(t, s.count(t, opened)-before, int64(3), "new sessions of an idle worker")
	}

	five := s.startWorker(t, loopback)
	waitReady(t, five.httpAddress(t))
	s.wait(t, 90*time.Second, "five kinds to need few connections", few, 8)
	requireFewNewSessions()
	five.stop(t)
	if !pgtest.Long {
		return
	}

	one := s.startWorker(t, loopback, "SEXTON_GHOST_USERS__ENABLED=false", "SEXTON_PLACEHOLDER_USERS__ENABLED=false",
		"SEXTON_ADJOURNED_GROUPS__ENABLED=false", "SEXTON_EXTERNAL_DIFFS__ENABLED=false")
	waitReady(t, one.httpAddress(t))
	s.wait(t, 90*time.Second, "one kind to need few connections", few, 3)
	requireFewNewSessions()
	one.stop(t)
}

// streamTables adds enough parents for a stream of deletions.
const streamTables = `
INSERT INTO parents SELECT generate_series(11, 400);
INSERT INTO children SELECT number, number % 390 + 11 FROM generate_series(100, 3999) AS number;`

// testRunSeveralProcesses runs two workers and foreground runs during a stream of
// deletions. No child may be deleted twice, and no run may fail.
func testRunSeveralProcesses(t *testing.T, p program) {
	s := newWorkSite(t, p)
	s.exec(t, streamTables)
	first, second := s.startWorker(t), s.startWorker(t)

	streamed := make(chan error)
	go func() {
		var err error
		for id := 1; id <= 400 && err == nil; id++ {
			_, err = s.pool.Exec(t.Context(), "DELETE FROM parents WHERE id = $1", id)
		}
		streamed <- err
	}()
	for done := false; !done; {
		outcome := parseReport(t, p.run(t, s.dir, s.url, 0, "job", "run", kind, "--json")).Outcome
		require.Contains(t, []string{"done", "skipped"}, outcome, "outcome of a foreground run while two workers are running")
		select {
		case err := <-streamed:
			require.NoError(t, err, "delete parents")
			done = true
		default:
		}
	}
	s.wait(t, time.Minute, "all work to be done", workDone)
	// A second deletion of a child would violate the primary key of deletions and fail
	// the run.
	require.Equal(t, int64(4000), s.count(t, "SELECT count(*) FROM deletions"))
	require.Zero(t, s.count(t, "SELECT count(*) FROM children"))
	// The rechecks must be done first: a run that begins while the worker stops counts as
	// failed.
	s.wait(t, time.Minute, "all rechecks to be done", "NOT EXISTS (SELECT FROM sexton.swept)")
	first.stop(t)
	second.stop(t)
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.runs WHERE outcome = 'failed'"), "failed runs")
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE state <> 'completed'"),
		"jobs that did not complete")
	s.requireCleanedUp(t)
}

// testRunInvalidDefinition runs a worker with a definition whose table was dropped, and
// with lists of ghost users that do not match the tables. The worker must do all other
// work, and its log, status and doctor must report both problems.
func testRunInvalidDefinition(t *testing.T, p program) {
	s := newWorkSite(t, p)
	s.exec(t, "CREATE TABLE others (id bigint PRIMARY KEY); CREATE TABLE gone (id bigint PRIMARY KEY, other_id bigint)")
	file := filepath.Join(s.dir, "loose_foreign_keys.yml")
	require.NoError(t, os.WriteFile(file, []byte(gatedDefinitions+
		"gone: [{table: others, column: other_id, on_delete: async_delete}]\n"), 0o600))
	p.run(t, s.dir, s.url, 0, "triggers", "install")
	s.exec(t, `CREATE TABLE users (id bigint PRIMARY KEY, username text UNIQUE, email text UNIQUE, name text, state text, user_type smallint,
		admin boolean NOT NULL DEFAULT false)`)
	p.environ = append([]string{"SEXTON_GHOST_USERS__ENABLED=true"}, p.environ...)
	s.program = p
	p.run(t, s.dir, s.url, 0, "migrate", "up")
	s.exec(t, "INSERT INTO others VALUES (1); DROP TABLE gone; DELETE FROM others; DELETE FROM parents WHERE id = 1")

	w := s.startWorker(t)
	w.waitForLog(t, "child table public.gone does not exist")
	s.wait(t, time.Minute, "the children of the other parent to be deleted", `NOT EXISTS (SELECT FROM children WHERE parent_id = 1)
		AND NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public.parents')`)
	require.EqualValues(t, 1,
		s.count(t, "SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public.others'"))
	s.wait(t, time.Minute, "the held work in the worker's row", `EXISTS (SELECT FROM sexton.clients, unnest(held) AS h WHERE h LIKE 'loose_foreign_keys_cleanup/main: %gone%')
		AND EXISTS (SELECT FROM sexton.clients, unnest(held) AS h WHERE h LIKE 'users_migrate_records_to_ghost_user_in_batches/main: %')`)
	status := p.run(t, s.dir, s.url, 0, "status")
	require.Contains(t, status, "a configuration that matches the database: ")
	require.Contains(t, status, "child table public.gone does not exist")
	p.run(t, s.dir, s.url, 5, "doctor")

	// A run in progress still uses the definitions without the table, so it must end
	// first.
	s.wait(t, time.Minute, "the recheck to end",
		"NOT EXISTS (SELECT FROM sexton.swept) AND NOT EXISTS (SELECT FROM sexton.river_job WHERE state = 'running')")
	s.exec(t, "CREATE TABLE gone (id bigint PRIMARY KEY, other_id bigint); UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	p.run(t, s.dir, s.url, 0, "job", "enqueue", kind)
	s.wait(t, time.Minute, "the held parent to be processed", "NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
	w.stop(t)
}

// testRunLateChild inserts a child in a transaction that is older than its parent's
// deletion, after the cleanup. No notification reports its commit to the two workers,
// and no tick is scheduled. The recheck must delete the child.
func testRunLateChild(t *testing.T, p program) {
	s := newWorkSite(t, p)
	first, second := s.startWorker(t), s.startWorker(t)
	older := pgtest.Must(pgx.Connect(t.Context(), s.url))(t)
	defer func() { require.NoError(t, older.Close(context.WithoutCancel(t.Context()))) }()
	exec := func(sql string) {
		_, err := older.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	exec("BEGIN")
	exec("SELECT FROM parents WHERE id = 1")
	s.exec(t, "DELETE FROM parents WHERE id = 1")
	s.wait(t, time.Minute, "the cleanup to end", workDone)
	s.waitIdle(t)
	require.Equal(t, int64(1), s.count(t, "SELECT count(*) FROM sexton.swept"))
	require.Contains(t, p.run(t, s.dir, s.url, 0, "status", "--json"), `"confirming": 1`)
	exec("INSERT INTO children VALUES (1000, 1)")
	s.waitIdle(t)
	exec("COMMIT")
	s.wait(t, 2*time.Minute, "the late child to be deleted", "NOT EXISTS (SELECT FROM children WHERE parent_id = 1)")
	s.wait(t, 2*time.Minute, "all rechecks to be done", "NOT EXISTS (SELECT FROM sexton.swept)")
	s.wait(t, 2*time.Minute, "the run to be recorded",
		"(SELECT sum((stats ->> 'late_children')::bigint) = 1 FROM sexton.runs)")
	first.stop(t)
	second.stop(t)
	s.requireCleanedUp(t)
}

// testRunLeaderKilled kills the worker that leads the schedules just before a tick. The
// other worker must become leader and insert exactly one job for the tick.
func testRunLeaderKilled(t *testing.T, p program) {
	s := newWorkSite(t, p)
	workers := []*runningWorker{s.startWorker(t), s.startWorker(t)}
	const led = "EXISTS (SELECT FROM sexton.river_leader AS leader JOIN sexton.clients AS client ON client.client_id = leader.leader_id WHERE client.pid = $1)"
	leader := -1
	s.wait(t, time.Minute, "the schedule to be stored", "EXISTS (SELECT FROM sexton.schedules)")
	for i, w := range workers {
		if s.count(t, "SELECT count(*) WHERE "+led, w.cmd.Process.Pid) == 1 {
			leader = i
		}
	}
	require.NotEqual(t, -1, leader, "one worker must be the leader")
	follower := workers[1-leader]
	// Without schedules in its row, the leader looks like a worker with another
	// configuration.
	s.exec(t, "UPDATE sexton.clients SET schedules = '{}' WHERE client_id = (SELECT leader_id FROM sexton.river_leader)")
	require.Contains(t, p.run(t, s.dir, s.url, 0, "status"),
		"loose_foreign_keys_cleanup of main has no ticks: the leader's configuration lacks it")
	workers[leader].signal(t, syscall.SIGKILL)
	s.exec(t, "UPDATE sexton.schedules SET last_tick = '2019-12-31 12:00:00+00'")
	killed := time.Now()
	s.wait(t, time.Minute, "the tick's job", "EXISTS (SELECT FROM sexton.river_job WHERE state = 'completed')")
	require.Less(t, time.Since(killed), 25*time.Second, "the gap that docs/jobs.md states")
	s.wait(t, time.Minute, "the other worker to lead", led, follower.cmd.Process.Pid)
	require.Contains(t, p.run(t, s.dir, s.url, 0, "status"), "cron leader: ")
	follower.stop(t)
	require.Equal(t, int64(1), s.count(t, "SELECT count(*) FROM sexton.river_job"), "jobs")
}

// testRunReloads makes a worker read its files again. Invalid files must leave the old
// configuration active, and valid files must be applied.
func testRunReloads(t *testing.T, p program) {
	s := newWorkSite(t, p)
	w := s.startWorker(t, loopback)
	address := w.httpAddress(t)
	waitReloadFailed := func(value string) {
		pgtest.WaitFor(t, "sexton_reload_failed to be "+value, func(ctx context.Context) (bool, error) {
			_, body := pageRequest(ctx, t, http.MethodGet, address, "/metrics", nil)
			return strings.Contains(body, "\nsexton_reload_failed "+value+"\n"), nil
		})
	}
	waitReloadFailed("0")
	file := filepath.Join(s.dir, "loose_foreign_keys.yml")
	require.NoError(t, os.WriteFile(file, []byte("children: [\n"), 0o600))
	w.signal(t, syscall.SIGHUP)
	w.waitForLog(t, `"msg":"configuration_not_reloaded"`)
	require.Contains(t, w.log.String(), "loose_foreign_keys.yml:")
	waitReloadFailed("1")
	s.wait(t, time.Minute, "a heartbeat with the error", "EXISTS (SELECT FROM sexton.clients WHERE reload_error <> '')")
	require.Contains(t, p.run(t, s.dir, s.url, 0, "status"), "WORKER WITH OLD CONFIGURATION")
	_, body := pageRequest(t.Context(), t, http.MethodGet, address, "/", nil)
	require.Contains(t, body, "still uses its old configuration: ")
	s.exec(t, "DELETE FROM parents WHERE id = 1")
	s.wait(t, stopLimit, "the old definitions to be used", workDone)

	require.NoError(t, os.WriteFile(file, []byte(gatedDefinitions), 0o600))
	w.signal(t, syscall.SIGHUP)
	pgtest.WaitFor(t, "the worker to start a second time", func(context.Context) (bool, error) {
		return strings.Count(w.log.String(), `"msg":"worker_started"`) == 2, nil
	})
	s.exec(t, "DELETE FROM parents WHERE id = 2")
	s.wait(t, stopLimit, "the new definitions to be used", workDone)

	// If valid files become invalid while the worker stops to apply them, the worker must
	// use the valid version that it has read.
	_, release := s.closeGate(t, "children")
	s.exec(t, "DELETE FROM parents WHERE id = 3")
	s.wait(t, stopLimit, "a batch to stop at the gate", dbtest.AtGate)
	require.NoError(t, os.WriteFile(file, []byte("# right\n"+gatedDefinitions), 0o600))
	w.signal(t, syscall.SIGHUP)
	w.waitForLog(t, `"msg":"configuration_reloaded"`)
	pgtest.WaitFor(t, "the worker to stop", func(context.Context) (bool, error) {
		return strings.Count(w.log.String(), `"msg":"worker_stopping"`) == 2, nil
	})
	require.NoError(t, os.WriteFile(file, []byte("children: [\n"), 0o600))
	release()
	pgtest.WaitFor(t, "the worker to start a third time", func(context.Context) (bool, error) {
		return strings.Count(w.log.String(), `"msg":"worker_started"`) == 3, nil
	})
	s.wait(t, stopLimit, "the valid definitions to be used", workDone)
	w.stop(t)
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.leases WHERE expires_at > now()"), "leases after the stop")
}

// testRunConnectionLostAtStart makes a worker lose its connection in its first heartbeat.
// The worker must try again.
func testRunConnectionLostAtStart(t *testing.T, p program) {
	s := newWorkSite(t, p)
	s.exec(t, `CREATE SEQUENCE beats;
		CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			IF nextval('public.beats') < 3 THEN RAISE EXCEPTION 'terminating connection' USING ERRCODE = '57P01'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER lose BEFORE INSERT ON sexton.clients FOR EACH ROW EXECUTE FUNCTION lose()`)
	w := s.startWorker(t)
	require.Contains(t, w.log.String(), `"msg":"database_unreachable_at_start"`)
	w.stop(t)
}

// testRunDeploy runs two workers with different definitions, as in a rolling deploy. Then
// the worker with the old definitions runs alone and must leave the tombstones until it
// reads the new files after SIGHUP.
func testRunDeploy(t *testing.T, p program) {
	s := newWorkSite(t, p)
	s.exec(t, `CREATE TABLE notes (id bigint PRIMARY KEY, parent_id bigint);
		CREATE INDEX ON notes (parent_id);
		INSERT INTO parents SELECT generate_series(11, 60);
		INSERT INTO notes SELECT id, id FROM parents`)
	const allDone = `NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records) AND NOT EXISTS (
		SELECT FROM notes WHERE NOT EXISTS (SELECT FROM parents WHERE parents.id = notes.parent_id)) AND ` + workDone

	file := filepath.Join(t.TempDir(), "definitions.yml")
	require.NoError(t, os.WriteFile(file, []byte(gatedDefinitions), 0o600))
	earlier := s.startWorker(t, "SEXTON_LOOSE_FOREIGN_KEYS__DEFINITIONS="+file)

	const both = gatedDefinitions + "notes: [{table: parents, column: parent_id, on_delete: async_delete}]\n"
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "loose_foreign_keys.yml"), []byte(both), 0o600))
	later := s.startWorker(t)
	require.Contains(t, p.run(t, s.dir, s.url, 0, "triggers", "install"), "not recorded for notes: sexton audit")
	s.exec(t, "DELETE FROM parents WHERE id BETWEEN 11 AND 50")
	s.wait(t, stopLimit, "the children of both definitions to be deleted", allDone)
	earlier.waitForLog(t, "other_definitions_installed")

	later.stop(t)
	s.exec(t, "DELETE FROM parents WHERE id > 50 OR id <= 5")
	pgtest.WaitFor(t, "the stopped worker's row to be removed", func(context.Context) (bool, error) {
		return s.count(t, "SELECT count(*) FROM sexton.clients") == 1, nil
	})
	require.Contains(t, p.run(t, s.dir, s.url, 0, "status"), "the installed definitions: 1 of 1 worker loaded other definitions")
	require.EqualValues(t, 15, s.count(t, "SELECT count(*) FROM loose_foreign_keys_deleted_records"),
		"tombstones that wait for the worker's new files")
	require.NoError(t, os.WriteFile(file, []byte(both), 0o600))
	earlier.signal(t, syscall.SIGHUP)
	s.wait(t, stopLimit, "the worker to read the files and continue", allDone)
	require.NotContains(t, earlier.log.String(), "configuration_not_reloaded")
	earlier.stop(t)
}

// testRunWakes deletes parents one at a time, each while the worker is idle. Without
// notifications the worker would poll every ten seconds, and all rounds would take much
// longer than the deadline.
func testRunWakes(t *testing.T, p program) {
	s := newWorkSite(t, p)
	w := s.startWorker(t)
	const rounds, limit = 10, 80 * time.Second
	deadline := time.Now().Add(limit)
	for id := 1; id <= rounds; id++ {
		s.waitIdle(t)
		s.exec(t, "DELETE FROM parents WHERE id = $1", id)
		s.wait(t, time.Until(deadline), "the children to be deleted", workDone)
	}
	require.Zero(t, s.count(t, "SELECT count(*) FROM children"))
	w.stop(t)
	s.requireCleanedUp(t)
}

// requireCleanedUp requires that stopped workers have left no leases, clients, running
// jobs or open runs.
func (s workSite) requireCleanedUp(t *testing.T) {
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.leases WHERE expires_at > clock_timestamp()"),
		"leases held")
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.clients"), "clients")
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE state = 'running'"), "running jobs")
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.runs WHERE ended_at IS NULL"), "runs without an end")
}

// testRunStops stops workers in the middle of a batch: one whose batch does not end, one
// whose batch ends and after which no other batch may begin, and one that gets two
// signals.
func testRunStops(t *testing.T, p program) {
	s := newWorkSite(t, p)
	stuck, _, release := s.startInBatch(t, "id <= 5")
	stuck.stop(t)
	s.requireCleanedUp(t)
	require.Zero(t, s.count(t, "SELECT count(*) FROM deletions"))
	release()

	first, pass, release := s.startInBatch(t, "id <= 5")
	pass()
	first.signal(t, syscall.SIGTERM)
	first.waitForLog(t, `"msg":"worker_stopping"`)
	release()
	require.Zero(t, first.waitExit(t, stopLimit), "exit code after SIGTERM")
	s.requireCleanedUp(t)
	require.Equal(t, int64(3), s.count(t, "SELECT count(*) FROM deletions"),
		"only the running batch must be committed")

	second := s.startWorker(t)
	s.wait(t, time.Minute, "another worker to finish the work", workDone)
	second.stop(t)
	require.Equal(t, int64(50), s.count(t, "SELECT count(*) FROM deletions"))
	s.requireCleanedUp(t)

	twice, _, _ := s.startInBatch(t, "id > 5")
	twice.signal(t, syscall.SIGINT)
	twice.waitForLog(t, `"msg":"worker_stopping"`)
	twice.signal(t, syscall.SIGINT)
	require.Equal(t, -1, twice.waitExit(t, stopLimit), "a second signal must kill the process")
}
