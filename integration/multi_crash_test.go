package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

const (
	// killRounds is the maximum number of rounds. No round begins after killTime.
	killRounds = 20
	killTime   = 5 * time.Second
)

// testMultiKills deletes rows in three databases while two workers are killed at random
// moments and foreground runs work as well. crashSeed replays the statements and the
// order of the kills.
func testMultiKills(t *testing.T, p program) {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv(crashSeed); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err, crashSeed)
	}
	t.Logf("to replay this, set %s=%d", crashSeed, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newMultiSite(t, p, layout{})
	workers := []*runningWorker{s.jobs.startWithoutWaiting(t), s.jobs.startWithoutWaiting(t)}
	made, round := 40, 0
	for until := time.Now().Add(killTime); round < killRounds && time.Now().Before(until); round++ {
		for range 1 + random.IntN(5) {
			made++
			s.insertParent(t, made)
			s.deleteParents(t, fmt.Sprintf("id %% 7 = %d AND id <= %d", random.IntN(7), random.IntN(made)))
			build := random.IntN(160)
			for _, db := range []*multiDB{&s.native, &s.ci} {
				db.exec(t, "DELETE FROM builds WHERE id = $1", build)
			}
		}
		served := s.databases()[random.IntN(3)].name
		foreground := p.start(t, s.dir, "", "job", "run", kind, "--database", served, "--json")
		dying := random.IntN(len(workers))
		s.jobs.kill(t, workers[dying])
		workers[dying] = s.jobs.startWithoutWaiting(t)
		require.Zero(t, foreground.wait(t), "exit code of a pass in the foreground\n%s", &foreground.stderr)
		require.Contains(t, []string{"done", "skipped"}, parseReport(t, foreground.stdout.String()).Outcome,
			"outcome while two workers are running")
	}
	t.Logf("%d rounds, %d runs of which %d did not end", round, s.jobs.count(t, "SELECT count(*) FROM sexton.runs"),
		s.jobs.count(t, "SELECT count(*) FROM sexton.runs WHERE error LIKE 'the worker died%' OR ended_at IS NULL"))
	for _, each := range workers {
		s.jobs.kill(t, each)
	}
	last := s.startWorker(t)
	s.waitCleaned(t)
	s.waitRechecked(t)
	s.jobs.wait(t, time.Minute, "dead workers to be removed", "(SELECT count(*) FROM sexton.clients) = 1")
	last.stop(t)
	s.requireFinalState(t)
}

// insertParent inserts a parent and its descendants in ci and sec.
func (s *multiSite) insertParent(t *testing.T, id int) {
	for _, into := range []struct {
		db     *multiDB
		first  chainTable
		second int
	}{
		{db: &s.main, first: chain()[0]},
		{db: &s.ci, first: chain()[1], second: 4},
		{db: &s.sec, first: chain()[3], second: 8},
	} {
		for _, db := range []*multiDB{&s.native, into.db} {
			switch into.second {
			case 0:
				db.exec(t, "INSERT INTO parents VALUES ($1)", id)
			case 4:
				db.exec(t, "INSERT INTO builds SELECT 1000 * $1::bigint + n, $1::bigint FROM generate_series(1, 4) AS n", id)
			default:
				db.exec(t, "INSERT INTO scans SELECT 1000 * $1::bigint + n, 1000 * $1::bigint + n % 4 + 1 FROM generate_series(1, 8) AS n", id)
			}
		}
	}
}

const (
	tombstones         = "loose_foreign_keys_deleted_records"
	countDeletedBuilds = "SELECT count(*) FROM changes WHERE at_table = 'builds'"
)

// stopBetweenCommits stops a worker that has committed the deletion of five parents'
// builds in ci, before it removes the tombstones in main.
func stopBetweenCommits(t *testing.T, s *multiSite) (w *runningWorker, pass, release func()) {
	s.main.exec(t, "CREATE TRIGGER note_change AFTER DELETE ON "+tombstones+
		" FOR EACH ROW EXECUTE FUNCTION note_change()")
	pass, release = s.main.closeGate(t, tombstones)
	s.deleteParents(t, someParents)
	w = s.startWorker(t)
	s.main.wait(t, time.Minute, "the worker to stop in the removal", dbtest.AtGate)
	require.Equal(t, int64(20), s.ci.count(t, countDeletedBuilds), "deletions committed in ci")
	require.Equal(t, int64(5), s.main.count(t, backlogOf), "tombstones in main")
	return w, pass, release
}

// testMultiKilledBetween kills a worker after it has deleted children in ci and before it
// removes the tombstones in main. The next worker finds the tombstones, but no children.
func testMultiKilledBetween(t *testing.T, p program) {
	s := newMultiSite(t, p, layout{})
	first, pass, _ := stopBetweenCommits(t, s)
	s.jobs.kill(t, first)
	pass()
	s.deleteParents(t, "id BETWEEN 4 AND 9")
	second := s.startWorker(t)
	s.waitCleaned(t)
	second.stop(t)
	s.requireFinalState(t)
}

// testMultiCommitIsDurable crashes the server of ci after a worker has deleted children
// there and before it removes the tombstones in main. The deletions in ci must survive,
// although the server flushes its write-ahead log only if a session waits for that.
// Batches in which a database deletes only its own children need not wait.
func testMultiCommitIsDurable(t *testing.T, p program) {
	server := pgtest.Server(t)
	s := newMultiSite(t, p, layout{urls: map[string]string{"ci": pgtest.NewOn(t, server).URL}})
	s.ci.exec(t, "ALTER SYSTEM SET wal_writer_delay = '10s'")
	s.ci.exec(t, "SELECT pg_reload_conf()")
	w, pass, release := stopBetweenCommits(t, s)
	s.ci.restart(t, server)
	require.Equal(t, int64(20), s.ci.count(t, countDeletedBuilds), "deletions in ci after the crash")
	pass()
	release()
	s.retryDeferred(t)
	w.stop(t)
	s.requireFinalState(t)
	for _, db := range s.databases() {
		require.Zero(t,
			db.count(t, "SELECT count(*) FROM changes WHERE at_table NOT IN ('links', $1) AND commits <> 'on'",
				tombstones), "batches for other databases in %s", db.name)
	}
	require.NotZero(t, s.sec.count(t, "SELECT count(*) FROM changes WHERE at_table = 'links' AND commits = 'off'"),
		"batches of sec for its own children")
}

// stopInBatchOfCI stops a worker after its first DELETE in ci, for parents in main.
func stopInBatchOfCI(t *testing.T, s *multiSite) (w *runningWorker, pass, release func()) {
	pass, release = s.ci.closeGate(t, "builds")
	s.deleteParents(t, someParents)
	w = s.startWorker(t)
	s.ci.wait(t, time.Minute, "the worker to stop after a DELETE", dbtest.AtGate)
	require.Zero(t, s.ci.count(t, "SELECT count(*) FROM changes"), "changes committed")
	return w, pass, release
}

// testMultiStoppedInBatch stops a process with SIGSTOP, whose session in ci is between
// DELETE and COMMIT, until its lease has expired.
func testMultiStoppedInBatch(t *testing.T, p program) {
	s := newMultiSite(t, p, layout{jobs: "sec"})
	first, pass, release := stopInBatchOfCI(t, s)
	first.signal(t, syscall.SIGSTOP)
	pass()
	s.takeOver(t, first, release)
	require.Zero(t, s.ci.count(t, "SELECT count(*) FROM changes WHERE "+changesOfToken("1")),
		"changes of the worker that was stopped in its first batch")
}

// testMultiStoppedBetweenBatches stops a process with SIGSTOP between two batches in ci.
// Its session is idle and stays connected, so only the fence in ci prevents further
// changes.
func testMultiStoppedBetweenBatches(t *testing.T, p program) {
	s := newMultiSite(t, p, layout{jobs: "sec"})
	first, _, release := stopInBatchOfCI(t, s)
	first.signal(t, syscall.SIGSTOP)
	release()
	s.ci.wait(t, time.Minute, "the stopped worker's batch to end", "EXISTS (SELECT FROM changes)")
	s.takeOver(t, first, func() {})
	require.NotZero(t, s.ci.count(t, "SELECT count(*) FROM changes WHERE "+changesOfToken("1")),
		"changes before the worker was stopped")
}

// takeOver expires main's lease of a stopped worker, lets foreground runs finish the
// work, and continues the stopped worker while there is new work.
func (s *multiSite) takeOver(t *testing.T, first *runningWorker, release func()) {
	s.jobs.exec(t, "UPDATE sexton.leases SET expires_at = clock_timestamp() WHERE key = $1", leaseKey)
	require.Equal(t, "done", s.runPass(t, "main").Outcome)
	require.Zero(t, s.main.count(t, backlogOf), "tombstones in main")
	for _, db := range []*multiDB{&s.main, &s.ci} {
		require.Equal(t, int64(2), db.count(t, "SELECT DISTINCT token FROM sexton.fences WHERE key = $1", leaseKey),
			"fence of main's lease in %s", db.name)
	}
	release()
	earlier := "SELECT count(*) FROM changes WHERE " + changesOfToken("1")
	before := s.ci.count(t, earlier)
	s.deleteParents(t, "id BETWEEN 6 AND 9")
	first.signal(t, syscall.SIGCONT)
	first.waitForLog(t, `"msg":"run_failed"`)
	first.waitForLog(t, "lease lost")
	s.retryDeferred(t)
	require.Equal(t, before, s.ci.count(t, earlier), "changes with the token of a lost lease")
	first.stop(t)
	s.requireFinalState(t)
}
