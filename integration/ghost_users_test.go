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

// testGhostUsers deletes users one after the other while two workers and passes in the
// foreground are at it, of which one worker is killed in the middle, and while the users
// go on writing.
func testGhostUsers(t *testing.T, p program) {
	s := newGhostSite(t, p, "")
	first, second := s.started(t), s.started(t)
	soft, hard := []int64{1, 3, 5, 6, 7, 9, 10}, []int64{2, 4, 8}
	for user := range int64(10) {
		user++
		s.leave(t, user == 2 || user == 4 || user == 8, user)
		for _, busy := range soft {
			if busy <= user {
				s.write(t, busy, 2)
			}
		}
		if user == 5 {
			s.wait(t, time.Minute, "the first rows to be moved", "EXISTS (SELECT FROM changes WHERE point = 'move')")
			s.kill(t, first)
		}
		outcome := parseReport(t, p.run(t, s.dir, s.url, 0, "job", "run", ghostKind, "--json")).Outcome
		require.Contains(t, []string{"done", "skipped"}, outcome, "a pass in the foreground beside two workers")
	}
	s.wait(t, time.Minute, "all users to be gone", noUsersLeft)
	s.sleeps(t)
	s.wait(t, time.Minute, "the dead worker to be buried", "(SELECT count(*) FROM sexton.clients) = 1")
	second.stop(t)
	s.settled(t, soft, hard)
}

// ghostPoint brings a worker to the point at which it is to die, and returns what makes
// the way free for others.
type ghostPoint func(t *testing.T, s ghostSite) (w *runningWorker, pass func())

// atPoint stops a worker behind a change of that sort and before its commit.
func atPoint(point string) ghostPoint {
	return func(t *testing.T, s ghostSite) (*runningWorker, func()) {
		pass, _ := s.shut(t, point)
		w := s.started(t)
		s.leave(t, false, 1, 2, 3)
		s.leave(t, true, 4)
		s.wait(t, time.Minute, "the worker to stop at "+point, dbtest.AtGate)
		return w, pass
	}
}

func ghostPoints() map[string]ghostPoint {
	points := map[string]ghostPoint{
		"asleep": func(t *testing.T, s ghostSite) (*runningWorker, func()) {
			w := s.started(t)
			s.leave(t, false, 1, 2, 3)
			s.leave(t, true, 4)
			s.wait(t, time.Minute, "the users to be gone", noUsersLeft)
			s.sleeps(t)
			return w, func() {}
		},
		"while it takes its lease": func(t *testing.T, s ghostSite) (*runningWorker, func()) {
			keeper := connect(t, s.url)
			pgtest.Exec(t, keeper, "BEGIN; LOCK TABLE sexton.fences IN EXCLUSIVE MODE")
			w := s.started(t)
			s.leave(t, false, 1, 2, 3)
			s.leave(t, true, 4)
			s.wait(t, time.Minute, "the worker to wait while it takes its lease",
				`EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation' AND relation = 'sexton.fences'::regclass
					AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
			return w, func() {
				pgtest.Must(keeper.Exec(context.WithoutCancel(t.Context()), "ROLLBACK"))(t)
			}
		},
	}
	points["putting a user off"] = func(t *testing.T, s ghostSite) (*runningWorker, func()) {
		s.exec(t, refusal)
		w, pass := atPoint("blame")(t, s)
		return w, func() {
			s.exec(t, "DROP TRIGGER refuse ON issues")
			pass()
		}
	}
	points["recording the run's end"] = func(t *testing.T, s ghostSite) (*runningWorker, func()) {
		_, release := s.shut(t, "history")
		w := s.started(t)
		s.leave(t, false, 1, 2, 3)
		s.leave(t, true, 4)
		s.wait(t, time.Minute, "the worker to stop in the history", dbtest.AtGate)
		// That session has no lease, by which others could find and end it.
		return w, release
	}
	for name, point := range map[string]string{
		"making the ghost user": "ghost", "in a move": "move", "in a deletion": "delete",
		"in a nullification":                      "nullify",
		"in the rows of a key that no list names": "key", "in the last transaction of a user": "end",
	} {
		points[name] = atPoint(point)
	}
	return points
}

// testGhostCrashes lets a worker die at each of these points, alone or together with the
// server. Another one has to finish.
func testGhostCrashes(t *testing.T, p program) {
	open := func(url string) ghostSite { return newGhostSite(t, p, url) }
	for name, reach := range pgtest.Few(t, ghostPoints(), "putting a user off") {
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
		// One fence stops both engines: testCrashes always has such a process.
		t.Run("process stopped between batches", func(t *testing.T) { t.Parallel(); testGhostStopped(t, p, false) })
	}
}

// recovers lets a second worker do what a dead one has left, and more: what one has
// written since who was in the middle, and two users who come later.
func (s ghostSite) recovers(t *testing.T) {
	s.write(t, 2, 3)
	second := s.started(t)
	s.leave(t, false, 5)
	s.leave(t, true, 6)
	s.wait(t, time.Minute, "all users to be gone", noUsersLeft)
	s.sleeps(t)
	s.wait(t, time.Minute, "dead workers to be buried", "(SELECT count(*) FROM sexton.clients) = 1")
	second.stop(t)
	s.settled(t, []int64{1, 2, 3, 5}, []int64{4, 6})
}

// testGhostStopped stops a process until its lease is over: in a batch, whose session
// another one ends, or between two, where only the fence keeps it from going on.
func testGhostStopped(t *testing.T, p program, inBatch bool) {
	s := newGhostSite(t, p, "")
	pass, release := s.shut(t, "move")
	first := s.started(t)
	s.leave(t, false, 1, 2, 3)
	s.leave(t, true, 4)
	s.wait(t, time.Minute, "the worker to stop in a move", dbtest.AtGate)
	first.signal(t, syscall.SIGSTOP)
	if inBatch {
		pass() // The session is ended then, and the fence refuses the next one.
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
	require.Equal(t, inBatch, before == 0, "changes of the worker that stood still: %d", before)
	s.leave(t, false, 5)
	first.signal(t, syscall.SIGCONT)
	first.logged(t, `"msg":"run_failed"`)
	first.logged(t, "lease lost")
	s.wait(t, time.Minute, "the user who came later to be gone", noUsersLeft)
	s.sleeps(t)
	require.Equal(t, before, s.count(t, earlier), "changes under a token whose lease has passed on")
	first.stop(t)
	s.settled(t, []int64{1, 2, 3, 5}, []int64{4})
}

// testPlaceholderUsers deletes the groups of an import while two workers and foreground
// passes are at it, of which one worker is killed: placeholders that have written nothing
// go, the others stay with a reason, and nobody is tried twice.
func testPlaceholderUsers(t *testing.T, p program) {
	s := p.site(t, pgtest.New(t).URL, onMain(`
loose_foreign_keys: {enabled: false}
ghost_users: {enabled: true, schedule: "0 0 1 1 *"}
placeholder_users: {enabled: true, schedule: "0 0 1 1 *", spacing: 10ms}
http: {listen: ""}
`, exampleapp.Schema()+`
		-- Each of seven groups has ten placeholders; every fifth has written an issue, and every tenth is there twice.
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
	first, second := s.started(t, soonDead), s.started(t, soonDead)

	// By the foreign key's action, by hand, and as rows that come in without an owner.
	s.exec(t, "DELETE FROM groups WHERE id <= 4")
	s.wait(t, time.Minute, "the first placeholder to be gone", "NOT EXISTS (SELECT FROM users WHERE id = 1)")
	leader := pgtest.Scalar[string](t, s.pool, "SELECT leader_id FROM sexton.river_leader")
	killed, left := first, second
	if strings.Contains(leader, fmt.Sprintf(":%d:", first.cmd.Process.Pid)) {
		killed, left = second, first // Another leader takes its time.
	}
	s.kill(t, killed)
	s.exec(t, "UPDATE import_placeholder_user_details SET namespace_id = NULL WHERE namespace_id = 5")
	s.exec(t, "INSERT INTO import_placeholder_user_details (placeholder_user_id, organization_id) SELECT n, 1 FROM generate_series(51, 60) AS n")
	s.exec(t, "DELETE FROM groups WHERE id = 6")
	p.run(t, s.dir, s.url, 0, "job", "run", "import_placeholder_user_cleanup")
	p.run(t, s.dir, s.url, 0, "job", "run", "import_delete_placeholder_user", "--args", `{"user_id": 32}`)
	p.run(t, s.dir, s.url, 0, "job", "run", "import_delete_placeholder_user", "--args", `{"user_id": 4711}`)
	s.wait(t, time.Minute, "all that may go to be gone", "NOT EXISTS (SELECT FROM users WHERE id <= 60 AND id % 5 > 0)")
	s.wait(t, time.Minute, "all others to be looked at once",
		"NOT EXISTS (SELECT FROM import_placeholder_user_details WHERE namespace_id IS NULL AND last_error IS NULL)")
	p.run(t, s.dir, s.url, 0, "job", "run", "import_placeholder_user_cleanup")
	s.wait(t, time.Minute, "all others to be looked at by each of their rows",
		"NOT EXISTS (SELECT FROM import_placeholder_user_details WHERE namespace_id IS NULL AND (last_error IS NULL OR deletion_attempts = 0))")
	s.wait(t, time.Minute, "all jobs to end", "NOT EXISTS (SELECT FROM sexton.river_job WHERE finalized_at IS NULL)")
	left.stop(t)

	require.EqualValues(t, 22, s.count(t, "SELECT count(*) FROM users WHERE user_type = 15"),
		"12 that wrote something, 10 with an owner")
	require.EqualValues(t, 14, s.count(t, "SELECT count(*) FROM issues"))
	require.Zero(t, s.count(t, "SELECT count(*) FROM issues JOIN users ON users.id = author_id WHERE user_type = 5"),
		"no author was lost")
	require.EqualValues(t, 48,
		s.count(t, "SELECT count(*) FROM ci_pipelines JOIN users ON users.id = user_id WHERE user_type = 5"),
		"contributions have passed")
	require.EqualValues(t, 48, s.count(t, "SELECT count(*) FROM sexton.events WHERE kind = 'user_destroyed'"),
		"each is announced once")
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
