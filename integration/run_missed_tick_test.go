package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testRunMissedTick misses a tick by years of them: they are made up for by one run, at the next start alone.
func testRunMissedTick(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	const entered = "EXISTS (SELECT FROM sexton.schedules WHERE kind = '" + kind + "' AND database = 'main')"

	fresh := s.started(t)
	s.wait(t, time.Minute, "the schedule to be entered", entered)
	fresh.stop(t)
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.river_job"), "jobs of a fresh installation")

	s.exec(t, "UPDATE sexton.schedules SET last_tick = '2019-12-31 12:00:00+00'")
	late := s.started(t)
	s.wait(t, time.Minute, "the missed tick to be made up for", "EXISTS (SELECT FROM sexton.river_job WHERE state = 'completed')")
	late.stop(t)
	again := s.started(t)
	s.wait(t, time.Minute, "the worker to be listened to", "EXISTS (SELECT FROM sexton.clients)")
	again.stop(t)
	require.Equal(t, int64(1), s.count(t, "SELECT count(*) FROM sexton.river_job"), "jobs")
	require.Equal(t, int64(1), s.count(t, "SELECT count(*) FROM sexton.runs WHERE outcome = 'done'"), "runs")
	require.Equal(t, int64(1), s.count(t, "SELECT count(*) FROM sexton.schedules WHERE last_tick = date_trunc('year', now(), 'UTC')"), "ticks at the latest missed time")
}
