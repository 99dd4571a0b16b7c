package integration

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

// testGhostUsers deletes users one after the other while two workers and foreground runs
// work, one worker is killed, and the users write further notes.
func testGhostUsers(t *testing.T, p program) {
	s := newGhostSite(t, p, "")
	first, second := s.startWorker(t), s.startWorker(t)
	soft, hard := []int64{1, 3, 5, 6, 7, 9, 10}, []int64{2, 4, 8}
	for user := range int64(10) {
		user++
		s.deleteUsers(t, user == 2 || user == 4 || user == 8, user)
		for _, busy := range soft {
			if busy <= user {
				s.writeNotes(t, busy, 2)
			}
		}
		if user == 5 {
			s.wait(t, time.Minute, "the first rows to be moved", "EXISTS (SELECT FROM changes WHERE point = 'move')")
			s.kill(t, first)
		}
		outcome := parseReport(t, p.run(t, s.dir, s.url, 0, "job", "run", ghostKind, "--json")).Outcome
		require.Contains(t, []string{"done", "skipped"}, outcome, "outcome of a foreground run while two workers are running")
	}
	s.wait(t, time.Minute, "all users to be deleted", noUsersLeft)
	s.waitIdle(t)
	s.wait(t, time.Minute, "the dead worker to be removed", "(SELECT count(*) FROM sexton.clients) = 1")
	second.stop(t)
	s.requireFinalState(t, soft, hard)
}

// ghostPoint starts a worker and stops it at the point where the test kills it. The
// function pass lets other sessions get past that point.
type ghostPoint func(t *testing.T, s ghostSite) (w *runningWorker, pass func())

// stopAtPoint returns a ghostPoint that stops a worker after a change of the given kind
// and before its COMMIT.
func stopAtPoint(point string) ghostPoint {
	return func(t *testing.T, s ghostSite) (*runningWorker, func()) {
		pass, _ := s.closeGate(t, point)
		w := s.startWorker(t)
		s.deleteUsers(t, false, 1, 2, 3)
		s.deleteUsers(t, true, 4)
		s.wait(t, time.Minute, "the worker to stop at "+point, dbtest.AtGate)
		return w, pass
	}
}

func ghostPoints() map[string]ghostPoint {
	points := map[string]ghostPoint{
		"without work": func(t *testing.T, s ghostSite) (*runningWorker, func()) {
			w := s.startWorker(t)
			s.deleteUsers(t, false, 1, 2, 3)
			s.deleteUsers(t, true, 4)
			s.wait(t, time.Minute, "the users to be deleted", noUsersLeft)
			s.waitIdle(t)
			return w, func() {}
		},
		"while it takes its lease": func(t *testing.T, s ghostSite) (*runningWorker, func()) {
			keeper := connect(t, s.url)
			pgtest.Exec(t, keeper, "BEGIN; LOCK TABLE sexton.fences IN EXCLUSIVE MODE")
			w := s.startWorker(t)
			s.deleteUsers(t, false, 1, 2, 3)
			s.deleteUsers(t, true, 4)
			s.wait(t, time.Minute, "the worker to wait while it takes its lease",
				`EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation' AND relation = 'sexton.fences'::regclass
					AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
			return w, func() {
				pgtest.Must(keeper.Exec(context.WithoutCancel(t.Context()), "ROLLBACK"))(t)
			}
		},
	}
	points["while it defers a user"] = func(t *testing.T, s ghostSite) (*runningWorker, func()) {
		s.exec(t, refusal)
		w, pass := stopAtPoint("blame")(t, s)
		return w, func() {
			s.exec(t, "DROP TRIGGER refuse ON issues")
			pass()
		}
	}
	points["while it records the run's end"] = func(t *testing.T, s ghostSite) (*runningWorker, func()) {
		_, release := s.closeGate(t, "history")
		w := s.startWorker(t)
		s.deleteUsers(t, false, 1, 2, 3)
		s.deleteUsers(t, true, 4)
		s.wait(t, time.Minute, "the worker to stop in the history", dbtest.AtGate)
		// The session that records a run holds no lease, so other workers cannot find and
		// end it. Therefore the test releases the session itself.
		return w, release
	}
	for name, point := range map[string]string{
		"while it creates the ghost user": "ghost", "in a move": "move", "in a deletion": "delete",
		"in a nullification":                             "nullify",
		"in the rows of a foreign key outside the lists": "key", "in the last transaction of a user": "end",
	} {
		points[name] = stopAtPoint(point)
	}
	return points
}

// testGhostCrashes kills a worker at each point, alone or together with the server.
// Another worker must finish the work.
func testGhostCrashes(t *testing.T, p program) {
	open := func(url string) ghostSite { return newGhostSite(t, p, url) }
	for name, reach := range pgtest.Few(t, ghostPoints(), "while it defers a user") {
		t.Run("worker killed "+name, func(t *testing.T) { t.Parallel(); testKilledAt(t, false, open, reach) })
	}
	for _, name := range []string{"in the last transaction of a user", "in a move"} {
		t.Run("server crashes with the worker "+name, func(t *testing.T) {
			t.Parallel()
			testKilledAt(t, true, open,
				ghostPoints()[name])
		})
		if !pgtest.Long {
			break
		}
	}
	if pgtest.Long {
		t.Run("process stopped in a batch", func(t *testing.T) { t.Parallel(); testGhostStopped(t, p, true) })
		// The short tests omit this case, because both engines use the same fence and
		// testCrashes always runs it for the other engine.
		t.Run("process stopped between batches", func(t *testing.T) { t.Parallel(); testGhostStopped(t, p, false) })
	}
}

// finishAfterKill starts a second worker. It must finish the work of the killed worker,
// delete notes that a user has written since the kill, and delete two further users.
func (s ghostSite) finishAfterKill(t *testing.T) {
	s.writeNotes(t, 2, 3)
	second := s.startWorker(t)
	s.deleteUsers(t, false, 5)
	s.deleteUsers(t, true, 6)
	s.wait(t, time.Minute, "all users to be deleted", noUsersLeft)
	s.waitIdle(t)
	s.wait(t, time.Minute, "dead workers to be removed", "(SELECT count(*) FROM sexton.clients) = 1")
	second.stop(t)
	s.requireFinalState(t, []int64{1, 2, 3, 5}, []int64{4, 6})
}

// testGhostStopped stops a process with SIGSTOP until its lease has expired. If inBatch
// is set, the process is in a batch, and the next worker ends its session. Otherwise it
// is between two batches, and only the fence prevents further changes.
func testGhostStopped(t *testing.T, p program, inBatch bool) {
	s := newGhostSite(t, p, "")
	pass, release := s.closeGate(t, "move")
	first := s.startWorker(t)
	s.deleteUsers(t, false, 1, 2, 3)
	s.deleteUsers(t, true, 4)
	s.wait(t, time.Minute, "the worker to stop in a move", dbtest.AtGate)
	first.signal(t, syscall.SIGSTOP)
	if inBatch {
		// The next worker ends the session, and the fence refuses the stopped worker's
		// next session.
		pass()
	} else {
		release()
		s.wait(t, time.Minute, "the stopped worker's batch to end", "EXISTS (SELECT FROM changes WHERE point = 'move')")
	}
	s.exec(t, "UPDATE sexton.leases SET expires_at = clock_timestamp() WHERE key = $1", ghostLease)
	require.Equal(t, "done", parseReport(t, p.run(t, s.dir, s.url, 0, "job", "run", ghostKind, "--json")).Outcome)
	require.Zero(t, s.count(t, "SELECT count(*) FROM users_ghost_user_migrations"), "users in the queue")
	if inBatch {
		release()
	}
	const earlier = "SELECT count(*) FROM changes WHERE point <> 'ghost' AND session LIKE 'sexton%#1'"
	before := s.count(t, earlier)
	require.Equal(t, inBatch, before == 0, "changes of the stopped worker: %d", before)
	s.deleteUsers(t, false, 5)
	first.signal(t, syscall.SIGCONT)
	first.waitForLog(t, `"msg":"run_failed"`)
	first.waitForLog(t, "lease lost")
	s.wait(t, time.Minute, "the later user to be deleted", noUsersLeft)
	s.waitIdle(t)
	require.Equal(t, before, s.count(t, earlier), "changes with the token of a lost lease")
	first.stop(t)
	s.requireFinalState(t, []int64{1, 2, 3, 5}, []int64{4})
}

// testPlaceholderUsers deletes the groups of an import while two workers and foreground
// runs work and one worker is killed. Placeholders that have written nothing must be
// deleted. The other placeholders must be kept with a reason, and each row must be tried
// only once.
func testPlaceholderUsers(t *testing.T, p program) {
	s := p.site(t, pgtest.New(t).URL, mainSetup(`
loose_foreign_keys: {enabled: false}
ghost_users: {enabled: true, schedule: "0 0 1 1 *"}
placeholder_users: {enabled: true, schedule: "0 0 1 1 *", spacing: 10ms}
http: {listen: ""}
`, exampleapp.Schema()+`
		-- Each of seven groups has ten placeholders; every fifth has written an issue, and every tenth has two rows.
		INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO groups (id, name, path) SELECT n, 'group ' || n, 'group' || n FROM generate_series(1, 12) AS n;
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 12, 'project', 'project');
		INSERT INTO users (id, username, email, name, user_type)
			SELECT n, 'p' || n, n || '@noreply.example.com', 'Placeholder ' || n, 15 FROM generate_series(1, 70) AS n;
		ALTER TABLE users ALTER id RESTART 1000;
		INSERT INTO issues (id, project_id, title, author_id) SELECT n, 1, 'imported', n FROM generate_series(5, 70, 5) AS n;
		INSERT INTO ci_pipelines (id, partition_id, project_id, user_id, ref, sha, status) SELECT n, 100, 1, n, 'main', 'x', 'success' FROM generate_series(1, 70) AS n;
		INSERT INTO import_placeholder_user_details (placeholder_user_id, namespace_id, organization_id)
			SELECT n, 1 + (n - 1) / 10, 1 FROM generate_series(1, 70) AS n
			UNION ALL SELECT n, 1 + (n - 1) / 10, 1 FROM generate_series(10, 70, 10) AS n;`, ""))
	first, second := s.startWorker(t, shortSilence), s.startWorker(t, shortSilence)

	// Rows lose their owner by the foreign key's action and by an UPDATE. Other rows are
	// inserted without an owner.
	s.exec(t, "DELETE FROM groups WHERE id <= 4")
	s.wait(t, time.Minute, "the first placeholder to be deleted", "NOT EXISTS (SELECT FROM users WHERE id = 1)")
	leader := pgtest.Scalar[string](t, s.pool, "SELECT leader_id FROM sexton.river_leader")
	killed, left := first, second
	if strings.Contains(leader, fmt.Sprintf(":%d:", first.cmd.Process.Pid)) {
		// The worker that is not the leader is killed, because the election of another
		// leader takes long.
		killed, left = second, first
	}
	s.kill(t, killed)
	s.exec(t, "UPDATE import_placeholder_user_details SET namespace_id = NULL WHERE namespace_id = 5")
	s.exec(t, "INSERT INTO import_placeholder_user_details (placeholder_user_id, organization_id) SELECT n, 1 FROM generate_series(51, 60) AS n")
	s.exec(t, "DELETE FROM groups WHERE id = 6")
	p.run(t, s.dir, s.url, 0, "job", "run", "import_placeholder_user_cleanup")
	p.run(t, s.dir, s.url, 0, "job", "run", "import_delete_placeholder_user", "--args", `{"user_id": 32}`)
	p.run(t, s.dir, s.url, 0, "job", "run", "import_delete_placeholder_user", "--args", `{"user_id": 4711}`)
	s.wait(t, time.Minute, "all unreferenced placeholders to be deleted", "NOT EXISTS (SELECT FROM users WHERE id <= 60 AND id % 5 > 0)")
	s.wait(t, time.Minute, "all other placeholders to be tried once",
		"NOT EXISTS (SELECT FROM import_placeholder_user_details WHERE namespace_id IS NULL AND last_error IS NULL)")
	p.run(t, s.dir, s.url, 0, "job", "run", "import_placeholder_user_cleanup")
	s.wait(t, time.Minute, "each row of the other placeholders to be tried",
		"NOT EXISTS (SELECT FROM import_placeholder_user_details WHERE namespace_id IS NULL AND (last_error IS NULL OR deletion_attempts = 0))")
	s.wait(t, time.Minute, "all jobs to end", "NOT EXISTS (SELECT FROM sexton.river_job WHERE finalized_at IS NULL)")
	left.stop(t)

	require.EqualValues(t, 22, s.count(t, "SELECT count(*) FROM users WHERE user_type = 15"),
		"12 with contributions, 10 with an owner")
	require.EqualValues(t, 14, s.count(t, "SELECT count(*) FROM issues"))
	require.Zero(t, s.count(t, "SELECT count(*) FROM issues JOIN users ON users.id = author_id WHERE user_type = 5"),
		"issues whose author is the ghost user")
	require.EqualValues(t, 48,
		s.count(t, "SELECT count(*) FROM ci_pipelines JOIN users ON users.id = user_id WHERE user_type = 5"),
		"pipelines of the ghost user")
	require.EqualValues(t, 48, s.count(t, "SELECT count(*) FROM sexton.events WHERE kind = 'user_destroyed'"),
		"one event per user")
	require.Zero(t, s.count(t, `SELECT count(*) FROM import_placeholder_user_details
		WHERE namespace_id IS NULL AND last_error <> format('still referenced by issues.author_id (id %s)', placeholder_user_id)`))
	// Each row was tried once, and every attempt was a job. Users that could be deleted
	// needed one job each.
	require.Zero(t,
		s.count(t, "SELECT count(*) FROM import_placeholder_user_details WHERE deletion_attempts <> CASE WHEN namespace_id IS NULL THEN 1 ELSE 0 END"))
	require.Zero(t, s.count(t, `SELECT count(*) FROM (
			SELECT args ->> 'user_id', count(*) FROM sexton.river_job WHERE kind = 'import_delete_placeholder_user' GROUP BY 1
		) AS job (user_id, jobs)
		WHERE jobs <> CASE WHEN user_id::bigint % 5 > 0 THEN 1
			ELSE (SELECT sum(deletion_attempts) FROM import_placeholder_user_details WHERE placeholder_user_id = user_id::bigint) END`))
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE state <> 'completed'"),
		"jobs that did not complete")
}
