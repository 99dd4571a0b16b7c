package integration

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// crashPoint starts a worker and stops it at the point where the test kills it. The
// function pass lets other sessions get past that point, even if the killed worker's
// session is still there.
type crashPoint func(t *testing.T, s twinSite) (w *runningWorker, pass func())

func crashPoints() map[string]crashPoint {
	return map[string]crashPoint{
		"before the commit of a batch":   stopBeforeCommit,
		"before the tombstone's removal": stopBeforeRemoval,
		"between lease and first batch":  stopBeforeFirstBatch,
		"without work":                   stopWhenWorkIsDone,
	}
}

const someParents = "id <= 5"

// stopBeforeCommit stops a worker after its first DELETE of children and before the
// COMMIT.
func stopBeforeCommit(t *testing.T, s twinSite) (*runningWorker, func()) {
	w, pass, _ := stopInFirstBatch(t, s)
	return w, pass
}

// stopInFirstBatch stops a worker at the gate after its first DELETE of children.
func stopInFirstBatch(t *testing.T, s twinSite) (w *runningWorker, pass, release func()) {
	pass, release = s.closeGate(t, "children")
	s.deleteParents(t, someParents)
	w = s.startWorker(t)
	s.wait(t, time.Minute, "the worker to stop after a DELETE", dbtest.AtGate)
	require.Zero(t, s.count(t, "SELECT count(*) FROM changes"), "changes committed")
	return w, pass, release
}

// stopBeforeRemoval stops a worker that has committed the deletions in one child table
// and is changing the second child table of a tombstone.
func stopBeforeRemoval(t *testing.T, s twinSite) (*runningWorker, func()) {
	pass, _ := s.closeGate(t, "links")
	s.deleteParents(t, someParents)
	w := s.startWorker(t)
	// The first transaction, for both tables, times out at the gate. Then the worker
	// commits the first table in smaller batches.
	s.wait(t, time.Minute, "the worker to stop in the second table",
		"EXISTS (SELECT FROM changes WHERE at_table = 'children') AND "+dbtest.AtGate)
	require.Equal(t, int64(5),
		s.count(t, "SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public.parents'"))
	return w, pass
}

// stopBeforeFirstBatch stops a worker in the statement that acquires the lease, before
// the statement raises the token in the fence. The server continues the statement after
// the worker was killed.
func stopBeforeFirstBatch(t *testing.T, s twinSite) (*runningWorker, func()) {
	s.deleteParents(t, someParents)
	keeper := connect(t, s.url)
	pgtest.Exec(t, keeper, "BEGIN; LOCK TABLE sexton.fences IN EXCLUSIVE MODE")
	w := s.startWorker(t)
	s.wait(t, time.Minute, "the worker to wait for the fence", `EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation' AND relation = 'sexton.fences'::regclass
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	return w, func() {
		_, _ = keeper.Exec(context.WithoutCancel(t.Context()), "ROLLBACK") // The statement fails if the server crashed.
	}
}

// stopWhenWorkIsDone starts a worker and waits until it is idle.
func stopWhenWorkIsDone(t *testing.T, s twinSite) (*runningWorker, func()) {
	w := s.startWorker(t)
	s.deleteParents(t, "id = 40")
	s.waitDrained(t)
	s.waitIdle(t)
	return w, func() {}
}

// testCrashes kills workers at random moments and at each crash point, alone or together
// with the server, and stops workers with SIGSTOP. Another worker must finish the work,
// and the rows must be those that native foreign keys leave.
func testCrashes(t *testing.T, p program) {
	t.Run("at random moments", func(t *testing.T) { t.Parallel(); testRandomCrashes(t, p) })
	t.Run("process stopped between batches", func(t *testing.T) { t.Parallel(); testStoppedBetweenBatches(t, p) })
	if !pgtest.Long {
		// The short tests omit these points, because testRandomCrashes can hit any of
		// them.
		return
	}
	t.Run("process stopped in a batch", func(t *testing.T) { t.Parallel(); testStoppedInBatch(t, p) })
	for name, reach := range crashPoints() {
		open := func(url string) twinSite { return newTwinSite(t, p, url, patientPace) }
		t.Run("worker killed "+name, func(t *testing.T) { t.Parallel(); testKilledAt(t, false, open, reach) })
		t.Run("server crashes with the worker "+name, func(t *testing.T) {
			t.Parallel()
			testKilledAt(t, true, open,
				reach)
		})
	}
}

// killable is a site on which another worker can finish the work of a killed worker.
type killable interface {
	kill(t *testing.T, w *runningWorker)
	wait(t *testing.T, limit time.Duration, what, condition string, args ...any)
	finishAfterKill(t *testing.T)
}

// testKilledAt kills a worker at a point of its work and, if crash is set, also crashes
// the server. Another worker must finish the work.
func testKilledAt[S killable](t *testing.T, crash bool, open func(url string) S,
	reach func(*testing.T, S) (w *runningWorker, pass func()),
) {
	t.Helper()
	url, restart := "", func() {}
	if crash {
		server := pgtest.Server(t)
		url, restart = server.URL("postgres"), func() {
			require.NoError(t,
				server.Restart(t.Context(), devpg.Immediate))
		}
	}
	s := open(url)
	dbtest.KillAtGate(func() (kill, pass func()) {
		w, pass := reach(t, s)
		return func() {
			restart()
			s.wait(t, time.Minute, "the server", "true")
			s.kill(t, w)
		}, pass
	}, func() { s.finishAfterKill(t) })
}

// finishAfterKill starts a second worker, which must finish the work of the killed worker
// and also new work.
func (s twinSite) finishAfterKill(t *testing.T) {
	s.deleteParents(t, "id BETWEEN 4 AND 9")
	second := s.startWorker(t)
	s.waitDrained(t)
	s.waitIdle(t)
	s.deleteParents(t, "id = 10")
	s.stopWhenIdle(t, second)
}

// testStoppedInBatch stops a process with SIGSTOP while its session is between DELETE and
// COMMIT. Another worker terminates that session. After SIGCONT the run of the stopped
// process must fail, because its lease is lost.
func testStoppedInBatch(t *testing.T, p program) {
	s := newTwinSite(t, p, "", patientPace)
	first, pass, release := stopInFirstBatch(t, s)
	first.signal(t, syscall.SIGSTOP)
	pass()
	// The other worker terminates the session of the stopped worker. The fence refuses
	// the worker's next session.
	s.takeOver(t, first, release)
	require.Zero(t, s.count(t, "SELECT count(*) FROM changes WHERE "+changesOfToken("1")),
		"changes of the worker that was stopped in its first batch")
}

// testStoppedBetweenBatches stops a process with SIGSTOP between two batches. Its session
// is idle and stays connected, so only the fence prevents further changes.
func testStoppedBetweenBatches(t *testing.T, p program) {
	s := newTwinSite(t, p, "", patientPace)
	first, _, release := stopInFirstBatch(t, s)
	first.signal(t, syscall.SIGSTOP)
	release()
	s.wait(t, time.Minute, "the stopped worker's batch to end", "EXISTS (SELECT FROM changes)")
	s.takeOver(t, first, func() {})
	require.NotZero(t, s.count(t, "SELECT count(*) FROM changes WHERE "+changesOfToken("1")),
		"changes before the worker was stopped")
}

// takeOver expires the lease of a stopped worker, lets a foreground run finish the work,
// and continues the stopped worker while there is new work. The stopped worker's run must
// fail because its lease is lost. Its later runs must use a new token.
func (s twinSite) takeOver(t *testing.T, first *runningWorker, release func()) {
	s.exec(t, "UPDATE sexton.leases SET expires_at = clock_timestamp() WHERE key = $1", leaseKey)
	require.Equal(t, "done", s.program.runPass(t, s.dir, s.url).Outcome)
	s.waitDrained(t)
	require.Equal(t, "2", s.token(t), "token of the second worker")
	release()
	before := s.count(t, "SELECT count(*) FROM changes WHERE "+changesOfToken("1"))
	s.deleteParents(t, "id BETWEEN 6 AND 9")
	first.signal(t, syscall.SIGCONT)
	first.waitForLog(t, `"msg":"run_failed"`)
	first.waitForLog(t, "lease lost")
	s.waitDrained(t)
	s.waitIdle(t)
	require.Equal(t, before, s.count(t, "SELECT count(*) FROM changes WHERE "+changesOfToken("1")),
		"changes with the token of a lost lease")
	require.Equal(t, s.rows(t, "native"), s.rows(t, "public"))
	first.stop(t)
	s.requireFinalState(t)
}

// twinTables creates the same four tables twice: in public, where a worker cleans up, and
// in the schema native with native foreign keys. A trigger records each row that is
// deleted or changed in public, and the session that changed it. It stops the session
// while the gate of the table is closed.
const twinTables = dbtest.Gates + `
CREATE FUNCTION pg_temp.make(place text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SET LOCAL search_path = %I', place);
    CREATE TABLE parents (id bigint PRIMARY KEY);
    CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
    CREATE TABLE leaves (id bigint PRIMARY KEY, child_id bigint);
    CREATE TABLE links (id bigint PRIMARY KEY, parent_id bigint);
    CREATE INDEX ON children (parent_id);
    CREATE INDEX ON leaves (child_id);
    CREATE INDEX ON links (parent_id);
    INSERT INTO parents SELECT generate_series(1, 40);
    INSERT INTO children SELECT number, number % 40 + 1 FROM generate_series(1, 400) AS number;
    INSERT INTO leaves SELECT number, number % 400 + 1 FROM generate_series(1, 800) AS number;
    INSERT INTO links SELECT number, number % 40 + 1 FROM generate_series(1, 400) AS number;
END $$;
CREATE SCHEMA native;
BEGIN;
SELECT pg_temp.make('public'), pg_temp.make('native');
COMMIT;
ALTER TABLE native.children ADD FOREIGN KEY (parent_id) REFERENCES native.parents ON DELETE CASCADE;
ALTER TABLE native.leaves ADD FOREIGN KEY (child_id) REFERENCES native.children ON DELETE CASCADE;
ALTER TABLE native.links ADD FOREIGN KEY (parent_id) REFERENCES native.parents ON DELETE SET NULL;

CREATE TABLE changes (number bigint GENERATED ALWAYS AS IDENTITY, at_table name, id bigint, session text);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = '1min' AS $$
BEGIN
    INSERT INTO changes (at_table, id, session) VALUES (TG_TABLE_NAME, OLD.id, current_setting('application_name'));
    PERFORM stop_at_gate(TG_TABLE_NAME);
    RETURN NULL;
END $$;
CREATE TRIGGER note_change AFTER DELETE ON children FOR EACH ROW EXECUTE FUNCTION note_change();
CREATE TRIGGER note_change AFTER DELETE ON leaves FOR EACH ROW EXECUTE FUNCTION note_change();
CREATE TRIGGER note_change AFTER UPDATE ON links FOR EACH ROW EXECUTE FUNCTION note_change();`

const twinDefinitions = `children:
  - {table: parents, column: parent_id, on_delete: async_delete}
leaves:
  - {table: children, column: child_id, on_delete: async_delete}
links:
  - {table: parents, column: parent_id, on_delete: async_nullify}
`

// patientPace sets the default pace with the longest target. With this target a statement
// has a timeout of 3 s, so that the test can act while the statement is stopped at a
// gate.
const patientPace = "loose_foreign_keys: {target: 1s}\n"

// twinSite is a site with the tables of twinTables.
type twinSite struct{ workSite }

func newTwinSite(t *testing.T, p program, url, settings string) twinSite {
	return twinSite{p.site(t, url, mainSetup(settings, twinTables, "").withDefinitions(twinDefinitions))}
}

// deleteParents deletes the same parents in both schemas.
func (s twinSite) deleteParents(t *testing.T, condition string) {
	for _, place := range []string{"native", "public"} {
		s.exec(t, "DELETE FROM "+place+".parents WHERE "+condition)
	}
}

// rows returns all rows of the tables of a schema, one line per row.
func (s twinSite) rows(t *testing.T, place string) []string {
	name := pgx.Identifier{place}.Sanitize()
	var sql string
	for _, table := range []string{"parents", "children", "leaves", "links"} {
		if sql != "" {
			sql += " UNION ALL "
		}
		sql += "SELECT '" + table + " ' || entry::text FROM " + name + "." + table + " AS entry"
	}
	found := pgtest.Must(s.pool.Query(t.Context(), sql+" ORDER BY 1"))(t)
	return pgtest.Must(pgx.CollectRows(found, pgx.RowTo[string]))(t)
}

// waitDrained waits until there are no tombstones.
func (s twinSite) waitDrained(t *testing.T) {
	s.wait(t, time.Minute, "all tombstones to be processed", "NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
}

// stopWhenIdle waits until a worker has no work and has removed dead workers, and stops
// it.
func (s twinSite) stopWhenIdle(t *testing.T, w *runningWorker) {
	s.waitDrained(t)
	s.waitIdle(t)
	s.wait(t, time.Minute, "dead workers to be removed", "(SELECT count(*) FROM sexton.clients) = 1")
	w.stop(t)
	s.requireFinalState(t)
}

// requireFinalState requires, after all workers have stopped, the rows that native
// foreign keys leave, and that no row was deleted twice.
func (s twinSite) requireFinalState(t *testing.T) {
	require.Equal(t, s.rows(t, "native"), s.rows(t, "public"), "rows differ from what native foreign keys leave")
	require.Zero(t, s.count(t, `SELECT count(*) FROM (
		SELECT FROM changes WHERE at_table <> 'links' GROUP BY at_table, id HAVING count(*) > 1) AS twice`), "rows deleted twice")
	s.requireCleanedUp(t)
	require.LessOrEqual(t,
		s.count(t, `SELECT sum(coalesce((stats ->> 'delete_count')::bigint, 0) + coalesce((stats ->> 'update_count')::bigint, 0))::bigint FROM sexton.runs WHERE kind = $1`, kind),
		s.count(t, "SELECT count(*) FROM changes WHERE "+changesOfToken("%")),
		"the history may lack the last changes of a killed worker, but must not count changes twice")
}

// token returns the current token of the lease.
func (s twinSite) token(t *testing.T) string {
	return strconv.FormatInt(s.count(t, "SELECT token FROM sexton.leases WHERE key = $1", leaseKey), 10)
}

// changesOfToken returns an SQL condition for the changes that sessions with a token
// made. The token % stands for all tokens.
func changesOfToken(token string) string { return "session LIKE 'sexton%#" + token + "'" }

// testRunKilled kills a worker in the middle of a batch. The worker's session in the
// server continues and holds locks. Without a schedule, another worker must detect this
// and finish the work.
func testRunKilled(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	first, pass, _ := s.startInBatch(t, "id <= 5", shortSilence)
	pass()
	second := s.startWorker(t, shortSilence)
	first.signal(t, syscall.SIGKILL)
	killed := time.Now()
	require.Equal(t, -1, first.waitExit(t, stopLimit))
	s.wait(t, 2*time.Minute, "the other worker to finish", workDone)
	t.Logf("finished %s after the kill", time.Since(killed).Round(10*time.Millisecond))
	require.Equal(t, int64(50), s.count(t, "SELECT count(*) FROM deletions"))
	second.stop(t)
	s.requireCleanedUp(t)
}

// testRunServerCrash crashes and restarts the server in the middle of a worker's batch,
// and again while the worker is idle. The worker must continue both times.
func testRunServerCrash(t *testing.T, p program) {
	server := pgtest.Server(t)
	s := p.site(t, server.URL("postgres"), gatedSetup())
	s.closeGate(t, "children")
	// The worker must wait until the lease from before the crash expires: 13 s with this
	// setting instead of 40 s.
	w := s.startWorker(t, "SEXTON_DATABASES__MAIN__LIMITS__RUNTIME=3s")
	s.exec(t, "DELETE FROM parents WHERE id <= 5")
	s.wait(t, time.Minute, "the worker to stop in its batch", dbtest.AtGate)
	require.NoError(t, server.Restart(t.Context(), devpg.Immediate))
	s.wait(t, time.Minute, "the server", "true")
	s.exec(t, "DELETE FROM closed_gate")
	s.wait(t, time.Minute, "the worker to reconnect and finish", workDone)

	s.waitIdle(t)
	require.NoError(t, server.Restart(t.Context(), devpg.Immediate))
	s.wait(t, time.Minute, "the server", "true")
	s.exec(t, "DELETE FROM parents")
	s.wait(t, time.Minute, "the worker to reconnect again and finish", workDone)
	require.Equal(t, int64(100), s.count(t, "SELECT count(*) FROM deletions"))
	w.stop(t)
	s.requireCleanedUp(t)
}

// testRunBeforeServer starts a worker before the server is reachable. With --fail-fast
// the worker must exit with code 4; otherwise it must wait and then work.
func testRunBeforeServer(t *testing.T, p program) {
	server := pgtest.Server(t)
	s := p.site(t, server.URL("postgres"), gatedSetup())
	s.exec(t, "DELETE FROM parents")
	// The path of t.TempDir is too long for a socket.
	socketDir, err := os.MkdirTemp("", "sexton-socket-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(socketDir) })
	address := pgtest.Must(url.Parse(s.url))(t)
	query := address.Query()
	query.Set("host", socketDir)
	address.RawQuery = query.Encode()
	late := s
	late.url = address.String()

	failing := late.start(t, []string{cronOff}, "--fail-fast")
	require.Equal(t, 4, failing.waitExit(t, time.Minute), "exit code with --fail-fast")
	require.Contains(t, failing.log.String(), "database main cannot be reached")

	w := late.start(t, []string{cronOff})
	w.waitForLog(t, `"msg":"database_unreachable_at_start","database":"main"`)
	require.NoError(t, os.Symlink(filepath.Join(server.SocketDir(), ".s.PGSQL.5432"),
		filepath.Join(socketDir, ".s.PGSQL.5432")))
	s.wait(t, time.Minute, "the worker to connect and finish", workDone)
	w.stop(t)
	s.requireCleanedUp(t)
}
