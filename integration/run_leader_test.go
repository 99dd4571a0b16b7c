package integration

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testRunLeaderKilled kills the worker that leads cron just before a tick: another worker leads, and gives the tick its one job.
func testRunLeaderKilled(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	workers := []*runningWorker{s.started(t), s.started(t)}
	const led = "EXISTS (SELECT FROM sexton.river_leader AS leader JOIN sexton.clients AS client ON client.client_id = leader.leader_id WHERE client.pid = $1)"
	leader := -1
	s.wait(t, time.Minute, "the schedule to be entered", "EXISTS (SELECT FROM sexton.schedules)")
	for i, w := range workers {
		if s.count(t, "SELECT count(*) WHERE "+led, w.cmd.Process.Pid) == 1 {
			leader = i
		}
	}
	require.NotEqual(t, -1, leader, "a worker leads")
	follower := workers[1-leader]
	// As a worker would that has another configuration.
	s.exec(t, "UPDATE sexton.clients SET schedules = '{}' WHERE client_id = (SELECT leader_id FROM sexton.river_leader)")
	require.Contains(t, p.run(t, s.dir, s.url, 0, "status"), "loose_foreign_keys_cleanup of main has no ticks: the leader's configuration lacks it")
	workers[leader].signal(t, syscall.SIGKILL)
	s.exec(t, "UPDATE sexton.schedules SET last_tick = '2019-12-31 12:00:00+00'")
	killed := time.Now()
	s.wait(t, time.Minute, "the tick's job", "EXISTS (SELECT FROM sexton.river_job WHERE state = 'completed')")
	require.Less(t, time.Since(killed), 25*time.Second, "the gap that docs/jobs.md states")
	s.wait(t, time.Minute, "the other worker to lead", led, follower.cmd.Process.Pid)
	require.Contains(t, p.run(t, s.dir, s.url, 0, "status"), "cron is led by ")
	follower.stop(t)
	require.Equal(t, int64(1), s.count(t, "SELECT count(*) FROM sexton.river_job"), "jobs")
}
