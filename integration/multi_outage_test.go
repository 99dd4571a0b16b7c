package integration

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// newOutageSite is a site with one database on a server of its own.
func newOutageSite(t *testing.T, p program, alone, jobs string) (*multiSite, *devpg.Server) {
	t.Helper()
	server := pgtest.Server(t)
	return newMultiSite(t, p, layout{jobs: jobs, urls: map[string]string{alone: pgtest.NewOn(t, server).URL}}), server
}

// soon is how long work may take on a busy machine that depends on no database that is down.
const soon = time.Minute

// deleteScans makes work of which ci has no part.
func (s *multiSite) deleteScans(t *testing.T, condition string) {
	t.Helper()
	for _, at := range []*home{&s.native, &s.sec} {
		at.exec(t, "DELETE FROM scans WHERE "+condition)
	}
}

// waitsForCI expects that tombstones in main wait for ci without blame, and that what sec and main have to do goes on.
func (s *multiSite) waitsForCI(t *testing.T, parents int64, scans string) {
	t.Helper()
	s.deleteScans(t, scans)
	s.sec.wait(t, soon, "work without ci to be done", "NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
	s.main.wait(t, soon, "tombstones to be put off", `NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records WHERE last_error IS NULL OR consume_after <= clock_timestamp())`)
	waiting, attempts, reason := s.main.waitingTombstones(t, "parents")
	require.Equal(t, parents, waiting, "tombstones that wait for ci")
	require.Zero(t, attempts, "attempts")
	require.Contains(t, reason, "database ci")

	var document struct {
		Tables []struct{ Database, Unreachable string } `json:"deletion_tables"`
		Jobs   []struct {
			Database string
			Waiting  *string `json:"waiting_for"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.run(t, 0, "status", "--json")), &document))
	require.Len(t, document.Tables, 3)
	for _, table := range document.Tables {
		require.Equal(t, table.Database == "ci", table.Unreachable != "", "what status says of %s: %q", table.Database, table.Unreachable)
	}
	for _, job := range document.Jobs {
		if job.Database == "ci" {
			require.NotNil(t, job.Waiting)
			require.Contains(t, *job.Waiting, "database ci cannot be reached")
		}
	}
}

// testMultiDownAtStart starts a worker while ci is down.
func testMultiDownAtStart(t *testing.T, p program) {
	t.Helper()
	s, server := newOutageSite(t, p, "ci", "main")
	s.deleteParents(t, "id <= 5")
	for _, at := range []*home{&s.native, &s.ci} {
		at.exec(t, "DELETE FROM builds WHERE id = 100")
	}
	crash(t, server)
	failing := s.jobs.start(t, []string{cronOff}, "--fail-fast")
	require.Equal(t, 4, failing.exit(t, time.Minute), "exit code with --fail-fast")
	require.Contains(t, failing.log.String(), "database ci cannot be reached")

	w := s.started(t)
	s.waitsForCI(t, 5, "id <= 10")
	s.waitsForCI(t, 5, "id <= 20")
	require.Equal(t, 1, w.lines(`"level":"WARN"`, `"database":"ci"`, "it and what depends on it waits"), "lines about the lane of ci")
	require.LessOrEqual(t, w.lines(`"level":"WARN"`, `"database":"ci"`, "cannot be reached: what depends on it waits"), 1, "lines about those that need ci")
	s.ci.restart(t, server)
	w.logged(t, `"msg":"database can be reached"`)
	s.cleaned(t)
	w.stop(t)
	s.settled(t)
}

// testMultiDownMeanwhile takes ci away from a worker and brings it back.
func testMultiDownMeanwhile(t *testing.T, p program) {
	t.Helper()
	s, server := newOutageSite(t, p, "ci", "main")
	w := s.started(t)
	s.deleteParents(t, "id = 40")
	s.cleaned(t)
	crash(t, server)
	s.deleteParents(t, "id <= 5")
	s.waitsForCI(t, 5, "id <= 10")
	s.ci.restart(t, server)
	for _, at := range []*home{&s.native, &s.ci} {
		at.exec(t, "DELETE FROM builds WHERE id = 100")
	}
	s.hurried(t)
	require.Equal(t, 1, w.lines(`"msg":"wake-up connection lost`, `"database":"ci"`), "lines about the lane of ci")
	require.Equal(t, 1, w.lines(`"msg":"wake-up connection is back"`, `"database":"ci"`), "lines about its end")
	require.LessOrEqual(t, w.lines(`"level":"WARN"`, `"database":"ci"`, "cannot be reached: what depends on it waits"), 1, "lines about those that need ci")
	w.stop(t)
	s.settled(t)
}

// testMultiJobsDown takes the database with the jobs away, which all others need.
func testMultiJobsDown(t *testing.T, p program) {
	t.Helper()
	s, server := newOutageSite(t, p, "sec", "sec")
	w := s.started(t)
	s.deleteParents(t, "id = 40")
	s.cleaned(t)
	crash(t, server)
	s.deleteParents(t, "id <= 5")
	w.logged(t, `"msg":"wake-up connection lost`)
	require.Equal(t, int64(5), s.main.count(t, backlogOf), "tombstones without the jobs")
	s.run(t, 4, "status")
	s.sec.restart(t, server)
	s.cleaned(t)
	require.LessOrEqual(t, w.lines(`"level":"WARN"`, `"msg":"wake-up connection lost`), 3, "lines about lost connections, at most one per lane")
	w.stop(t)
	s.settled(t)
}

// testMultiHangs stops the processes of the server of ci, which then neither answer nor close their connections, as behind
// a network that swallows packets.
func testMultiHangs(t *testing.T, p program) {
	t.Helper()
	s, server := newOutageSite(t, p, "ci", "main")
	w := s.started(t)
	s.deleteParents(t, "id = 40")
	s.cleaned(t)
	rows, err := s.ci.pool.Query(t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
	require.NoError(t, err)
	pids := pgtest.Must(pgx.CollectRows(rows, pgx.RowTo[int]))(t)
	pids = append(pids, server.PID())
	signal := func(signal syscall.Signal) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, signal) // The session may have ended.
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	s.deleteParents(t, "id <= 5")
	s.waitsForCI(t, 5, "id <= 10")
	signal(syscall.SIGCONT)
	s.hurried(t)
	w.stop(t)
	s.settled(t)
}

// testMultiJobsDieAtStart lets the server with the jobs die while a worker that starts is looking at it.
func testMultiJobsDieAtStart(t *testing.T, p program) {
	t.Helper()
	s, server := newOutageSite(t, p, "sec", "sec")
	s.deleteParents(t, "id <= 5")
	keeper := pgtest.Begin(t, s.sec.pool, "LOCK TABLE sexton.objects")
	w := s.jobs.start(t, []string{cronOff})
	s.sec.wait(t, time.Minute, "the worker to look at the schema",
		"EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'sexton.objects'::regclass)")
	crash(t, server)
	_ = keeper.Rollback(t.Context())
	w.logged(t, `"msg":"database cannot be reached, trying again"`)
	s.sec.restart(t, server)
	s.cleaned(t)
	w.stop(t)
	s.settled(t)
}
