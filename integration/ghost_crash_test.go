package integration

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// ghostPoint brings a worker to the point at which it is to die, and returns what makes the way free for others.
type ghostPoint func(t *testing.T, s ghostSite) (w *runningWorker, pass func())

// atPoint stops a worker behind a change of that sort and before its commit.
func atPoint(point string) ghostPoint {
	return func(t *testing.T, s ghostSite) (*runningWorker, func()) {
		t.Helper()
		pass, _ := s.shut(t, point)
		w := s.started(t)
		s.leave(t, false, 1, 2, 3)
		s.leave(t, true, 4)
		s.wait(t, time.Minute, "the worker to stop at "+point, atGate)
		return w, pass
	}
}

func ghostPoints() map[string]ghostPoint {
	points := map[string]ghostPoint{
		"asleep": func(t *testing.T, s ghostSite) (*runningWorker, func()) {
			t.Helper()
			w := s.started(t)
			s.leave(t, false, 1, 2, 3)
			s.leave(t, true, 4)
			s.wait(t, time.Minute, "the users to be gone", noUsersLeft)
			s.sleeps(t)
			return w, func() {}
		},
		"while it takes its lease": func(t *testing.T, s ghostSite) (*runningWorker, func()) {
			t.Helper()
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
		t.Helper()
		s.exec(t, refusal)
		w, pass := atPoint("blame")(t, s)
		return w, func() {
			s.exec(t, "DROP TRIGGER refuse ON issues")
			pass()
		}
	}
	points["recording the run's end"] = func(t *testing.T, s ghostSite) (*runningWorker, func()) {
		t.Helper()
		_, release := s.shut(t, "history")
		w := s.started(t)
		s.leave(t, false, 1, 2, 3)
		s.leave(t, true, 4)
		s.wait(t, time.Minute, "the worker to stop in the history", atGate)
		// That session has no lease, by which others could find and end it.
		return w, release
	}
	for name, point := range map[string]string{
		"making the ghost user": "ghost", "in a move": "move", "in a deletion": "delete", "in a nullification": "nullify",
		"in the rows of a key that no list names": "key", "in the last transaction of a user": "end",
	} {
		points[name] = atPoint(point)
	}
	return points
}

// testGhostCrashes lets a worker die at each of these points, alone or together with the server. Another one has to finish.
func testGhostCrashes(t *testing.T, p program) {
	t.Helper()
	for name, reach := range ghostPoints() {
		if !everyWay && !slices.Contains([]string{"in a move", "while it takes its lease", "putting a user off"}, name) {
			continue
		}
		t.Run("worker killed "+name, func(t *testing.T) {
			t.Parallel()
			s := newGhostSite(t, p, "")
			first, pass := reach(t, s)
			s.bury(t, first)
			pass()
			s.recovers(t)
		})
	}
	for _, name := range []string{"in the last transaction of a user", "in a move"} {
		t.Run("server crashes with the worker "+name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Server(t)
			s := newGhostSite(t, p, server.URL("postgres"))
			first, _ := ghostPoints()[name](t, s)
			require.NoError(t, server.Restart(t.Context(), devpg.Immediate))
			s.wait(t, time.Minute, "the server", "true")
			s.exec(t, "DELETE FROM closed_gate")
			s.bury(t, first)
			s.recovers(t)
		})
		if !everyWay {
			break
		}
	}
	t.Run("worker killed and nobody told", func(t *testing.T) { t.Parallel(); testGhostKilledUnnoticed(t, p) })
	t.Run("process stopped in a batch", func(t *testing.T) { t.Parallel(); testGhostStopped(t, p, true) })
	t.Run("process stopped between batches", func(t *testing.T) { t.Parallel(); testGhostStopped(t, p, false) })
}

// recovers lets a second worker do what a dead one has left, and more: what one has written since who was in the middle, and
// two users who come later.
func (s ghostSite) recovers(t *testing.T) {
	t.Helper()
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

// testGhostKilledUnnoticed kills a worker in a batch with cron off. The other copy has to notice by itself.
func testGhostKilledUnnoticed(t *testing.T, p program) {
	t.Helper()
	p.environ = append(slices.Clip(p.environ), soonDead)
	s := newGhostSite(t, p, "")
	first, pass := atPoint("delete")(t, s)
	pass()
	second := s.started(t)
	first.signal(t, syscall.SIGKILL)
	killed := time.Now()
	require.Equal(t, -1, first.exit(t, stopLimit))
	s.wait(t, 2*time.Minute, "the other copy to finish", noUsersLeft)
	t.Logf("finished %s after the kill", time.Since(killed).Round(10*time.Millisecond))
	second.stop(t)
	s.settled(t, []int64{1, 2, 3}, []int64{4})
}

// testGhostStopped stops a process until its lease is over: in a batch, whose session another one ends, or between two, where
// only the fence keeps it from going on.
func testGhostStopped(t *testing.T, p program, inBatch bool) {
	t.Helper()
	s := newGhostSite(t, p, "")
	pass, release := s.shut(t, "move")
	first := s.started(t)
	s.leave(t, false, 1, 2, 3)
	s.leave(t, true, 4)
	s.wait(t, time.Minute, "the worker to stop in a move", atGate)
	first.signal(t, syscall.SIGSTOP)
	because := "SQLSTATE 57P01" // terminated by an administrator's command
	if inBatch {
		pass()
	} else {
		because = "lease lost"
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
	first.logged(t, because)
	s.wait(t, time.Minute, "the user who came later to be gone", noUsersLeft)
	s.sleeps(t)
	require.Equal(t, before, s.count(t, earlier), "changes under a token whose lease has passed on")
	first.stop(t)
	s.settled(t, []int64{1, 2, 3, 5}, []int64{4})
}
