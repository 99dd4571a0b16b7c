package integration

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testRunWakes deletes parents one at a time, each while the worker sleeps. Without notifications it would
// look every ten seconds, and the rounds together would take far longer than the deadline.
func testRunWakes(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	w := s.started(t)
	const rounds, limit = 10, 80 * time.Second
	deadline := time.Now().Add(limit)
	for id := 1; id <= rounds; id++ {
		s.wait(t, time.Until(deadline), "the worker to sleep", asleep, awakeKey()...)
		s.exec(t, "DELETE FROM parents WHERE id = $1", id)
		s.wait(t, time.Until(deadline), "the children to be gone", noWork)
	}
	require.Zero(t, s.count(t, "SELECT count(*) FROM children"))
	w.stop(t)
	s.cleanedUp(t)
}

// cleanedUp expects that a worker has left nothing that others would have to wait for.
func (s workSite) cleanedUp(t *testing.T) {
	t.Helper()
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.leases WHERE expires_at > clock_timestamp()"), "leases held")
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.clients"), "clients")
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE state = 'running'"), "running jobs")
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.runs WHERE ended_at IS NULL"), "runs without an end")
}

// testRunStops asks a worker to stop in the middle of a batch: the batch ends, and no other begins.
func testRunStops(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	open, release := s.closeGate(t)
	first := s.started(t)
	s.exec(t, "DELETE FROM parents WHERE id <= 5")
	s.wait(t, time.Minute, "the worker to stop in its batch", stopped)
	open()
	first.signal(t, syscall.SIGTERM)
	first.logged(t, `"msg":"worker stops`)
	release()
	require.Zero(t, first.exit(t, stopLimit), "exit code after SIGTERM")
	s.cleanedUp(t)
	require.Equal(t, int64(3), s.count(t, "SELECT count(*) FROM deletions"), "the running batch is committed, and no other")

	second := s.started(t)
	s.wait(t, time.Minute, "another worker to finish", noWork)
	second.stop(t)
	require.Equal(t, int64(50), s.count(t, "SELECT count(*) FROM deletions"))
	s.cleanedUp(t)
}

// testRunStopsInTime asks a worker to stop whose batch does not end by itself.
func testRunStopsInTime(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	s.closeGate(t)
	w := s.started(t)
	s.exec(t, "DELETE FROM parents WHERE id <= 5")
	s.wait(t, time.Minute, "the worker to stop in its batch", stopped)
	w.stop(t)
	s.cleanedUp(t)
	require.Zero(t, s.count(t, "SELECT count(*) FROM deletions"))
}

// testRunSecondSignal ends a worker that is stopping by a second signal.
func testRunSecondSignal(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	s.closeGate(t)
	w := s.started(t)
	s.exec(t, "DELETE FROM parents WHERE id <= 5")
	s.wait(t, time.Minute, "the worker to stop in its batch", stopped)
	w.signal(t, syscall.SIGINT)
	w.logged(t, `"msg":"worker stops`)
	w.signal(t, syscall.SIGINT)
	require.Equal(t, -1, w.exit(t, stopLimit), "a second signal ends the process itself")
}
