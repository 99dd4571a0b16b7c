package integration

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// crashPoint brings a worker to the point at which it is to die, and returns what makes the way free for others
// while the dead one's session still stands there.
type crashPoint func(t *testing.T, s twinSite) (w *runningWorker, pass func())

func crashPoints() map[string]crashPoint {
	return map[string]crashPoint{
		"before the commit of a batch":   beforeCommit,
		"before the tombstone's removal": beforeRemoval,
		"between lease and first batch":  beforeFirstBatch,
		"asleep":                         whileAsleep,
	}
}

const someParents = "id <= 5"

// beforeCommit stops a worker behind its first DELETE of children.
func beforeCommit(t *testing.T, s twinSite) (*runningWorker, func()) {
	t.Helper()
	w, pass, _ := inFirstBatch(t, s)
	return w, pass
}

func inFirstBatch(t *testing.T, s twinSite) (w *runningWorker, pass, release func()) {
	t.Helper()
	pass, release = s.shut(t, "children")
	s.deleteParents(t, someParents)
	w = s.started(t)
	s.wait(t, time.Minute, "the worker to stop behind a DELETE", stopped)
	require.Zero(t, s.count(t, "SELECT count(*) FROM changes"), "changes committed")
	return w, pass, release
}

// beforeRemoval stops a worker that has cleaned one child table of a tombstone and committed that, in the second.
func beforeRemoval(t *testing.T, s twinSite) (*runningWorker, func()) {
	t.Helper()
	pass, _ := s.shut(t, "links")
	s.deleteParents(t, someParents)
	w := s.started(t)
	s.wait(t, time.Minute, "the worker to stop in the second table", stopped)
	require.NotZero(t, s.count(t, "SELECT count(*) FROM changes WHERE at_table = 'children'"), "deletions committed")
	require.Equal(t, int64(5), s.count(t, "SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public.parents'"))
	return w, pass
}

// beforeFirstBatch stops a worker in the statement that takes the lease, before it raises the token in the fence. Its session goes on
// without it.
func beforeFirstBatch(t *testing.T, s twinSite) (*runningWorker, func()) {
	t.Helper()
	s.deleteParents(t, someParents)
	keeper := connect(t, s.url)
	pgtest.Exec(t, keeper, "BEGIN; LOCK TABLE sexton.fences IN EXCLUSIVE MODE")
	w := s.started(t)
	s.wait(t, time.Minute, "the worker to wait for the fence", `EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation' AND relation = 'sexton.fences'::regclass
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	return w, func() {
		pgtest.Must(keeper.Exec(context.WithoutCancel(t.Context()), "ROLLBACK"))(t)
	}
}

func whileAsleep(t *testing.T, s twinSite) (*runningWorker, func()) {
	t.Helper()
	w := s.started(t)
	s.deleteParents(t, "id = 40")
	s.drained(t)
	s.wait(t, time.Minute, "the worker to sleep", asleep, awakeKey()...)
	return w, func() {}
}

// testCrashes lets a worker die at each of these points, alone or together with the server; other tests let it die
// anywhere or stand still. Another one has to finish, and the end must be the one under native foreign keys.
func testCrashes(t *testing.T, p program) {
	t.Helper()
	t.Run("at random moments", func(t *testing.T) { t.Parallel(); testRandomCrashes(t, p) })
	t.Run("process stopped in a batch", func(t *testing.T) { t.Parallel(); testStoppedInBatch(t, p) })
	t.Run("process stopped between batches", func(t *testing.T) { t.Parallel(); testStoppedBetweenBatches(t, p) })
	for name, reach := range crashPoints() {
		t.Run("worker killed "+name, func(t *testing.T) {
			t.Parallel()
			s := newTwinSite(t, p, "", patientPace)
			first, pass := reach(t, s)
			s.bury(t, first)
			pass()
			s.recovers(t)
		})
		if !everyWay && name != "before the commit of a batch" {
			continue
		}
		t.Run("server crashes with the worker "+name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.Server(t)
			s := newTwinSite(t, p, server.URL("postgres"), patientPace)
			first, _ := reach(t, s)
			require.NoError(t, server.Restart(t.Context(), devpg.Immediate))
			s.wait(t, time.Minute, "the server", "true")
			s.exec(t, "DELETE FROM closed_gate")
			s.bury(t, first)
			s.recovers(t)
		})
	}
}

// recovers lets a second worker do what a dead one has left, and more.
func (s twinSite) recovers(t *testing.T) {
	t.Helper()
	s.deleteParents(t, "id BETWEEN 4 AND 9")
	second := s.started(t)
	s.drained(t)
	s.wait(t, time.Minute, "the second worker to sleep", asleep, awakeKey()...)
	s.deleteParents(t, "id = 10")
	s.rests(t, second)
}

// testStoppedInBatch stops a process while its session is between DELETE and COMMIT. Another one ends that
// session; what the first finds when it goes on is a dead connection.
func testStoppedInBatch(t *testing.T, p program) {
	t.Helper()
	s := newTwinSite(t, p, "", patientPace)
	first, pass, release := inFirstBatch(t, s)
	first.signal(t, syscall.SIGSTOP)
	pass()
	s.takenOver(t, first, release, "SQLSTATE 57P01") // terminated by an administrator's command
	require.Zero(t, s.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("1")), "changes of the worker that stood still in its first batch")
}

// testStoppedBetweenBatches stops a process whose session then is idle and stays alive: only the fence keeps it
// from going on.
func testStoppedBetweenBatches(t *testing.T, p program) {
	t.Helper()
	s := newTwinSite(t, p, "", patientPace)
	first, _, release := inFirstBatch(t, s)
	first.signal(t, syscall.SIGSTOP)
	release()
	s.wait(t, time.Minute, "the stopped worker's batch to end", "EXISTS (SELECT FROM changes)")
	s.takenOver(t, first, func() {}, "lease lost")
	require.NotZero(t, s.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("1")), "changes before the worker stood still")
}

// takenOver expires the lease of a worker that stands still, lets another one finish, and the first one go on
// where there is new work. Its pass must fail for the reason given; what it does then has another token.
func (s twinSite) takenOver(t *testing.T, first *runningWorker, release func(), because string) {
	t.Helper()
	s.exec(t, "UPDATE sexton.leases SET expires_at = clock_timestamp() WHERE key = $1", leaseKey)
	require.Equal(t, "done", s.program.pass(t, s.dir, s.url).Outcome)
	s.drained(t)
	require.Equal(t, "2", s.token(t), "token of the second worker")
	release()
	before := s.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("1"))
	s.deleteParents(t, "id BETWEEN 6 AND 9")
	first.signal(t, syscall.SIGCONT)
	first.logged(t, `"msg":"run_failed"`)
	first.logged(t, because)
	s.drained(t)
	s.wait(t, time.Minute, "the first worker to sleep", asleep, awakeKey()...)
	require.Equal(t, before, s.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("1")), "changes under a token whose lease has passed on")
	require.Equal(t, s.rows(t, "native"), s.rows(t, "public"))
	first.stop(t)
	s.settled(t)
}
