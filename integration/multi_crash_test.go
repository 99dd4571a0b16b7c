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
	// killRounds is how many rounds of work and death there are, killTime the time after
	// which no other begins.
	killRounds = 20
	killTime   = 5 * time.Second
)

// testMultiKills lets two workers that are killed at random moments, and passes in the
// foreground that are not, work on one stream of deletions in three databases. crashSeed
// replays the statements and the order of the kills.
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
	workers := []*runningWorker{s.jobs.begin(t), s.jobs.begin(t)}
	made, round := 40, 0
	for until := time.Now().Add(killTime); round < killRounds && time.Now().Before(until); round++ {
		for range 1 + random.IntN(5) {
			made++
			s.plant(t, made)
			s.deleteParents(t, fmt.Sprintf("id %% 7 = %d AND id <= %d", random.IntN(7), random.IntN(made)))
			build := random.IntN(160)
			for _, at := range []*home{&s.native, &s.ci} {
				at.exec(t, "DELETE FROM builds WHERE id = $1", build)
			}
		}
		served := s.places()[random.IntN(3)].name
		foreground := p.start(t, s.dir, "", "job", "run", kind, "--database", served, "--json")
		dying := random.IntN(len(workers))
		s.jobs.kill(t, workers[dying])
		workers[dying] = s.jobs.begin(t)
		require.Zero(t, foreground.wait(t), "exit code of a pass in the foreground\n%s", &foreground.stderr)
		require.Contains(t, []string{"done", "skipped"}, parseReport(t, foreground.stdout.String()).Outcome,
			"beside two workers")
	}
	t.Logf("%d rounds, %d runs of which %d did not end", round, s.jobs.count(t, "SELECT count(*) FROM sexton.runs"),
		s.jobs.count(t, "SELECT count(*) FROM sexton.runs WHERE error LIKE 'the worker died%' OR ended_at IS NULL"))
	for _, each := range workers {
		s.jobs.kill(t, each)
	}
	last := s.started(t)
	s.cleaned(t)
	s.confirmed(t)
	s.jobs.wait(t, time.Minute, "dead workers to be buried", "(SELECT count(*) FROM sexton.clients) = 1")
	last.stop(t)
	s.settled(t)
}

// plant makes a parent with children in two databases.
func (s *multiSite) plant(t *testing.T, id int) {
	for _, into := range []struct {
		at     *home
		first  chainTable
		second int
	}{
		{at: &s.main, first: chain()[0]},
		{at: &s.ci, first: chain()[1], second: 4},
		{at: &s.sec, first: chain()[3], second: 8},
	} {
		for _, at := range []*home{&s.native, into.at} {
			switch into.second {
			case 0:
				at.exec(t, "INSERT INTO parents VALUES ($1)", id)
			case 4:
				at.exec(t, "INSERT INTO builds SELECT 1000 * $1::bigint + n, $1::bigint FROM generate_series(1, 4) AS n", id)
			default:
				at.exec(t, "INSERT INTO scans SELECT 1000 * $1::bigint + n, 1000 * $1::bigint + n % 4 + 1 FROM generate_series(1, 8) AS n", id)
			}
		}
	}
}

const (
	tombstones = "loose_foreign_keys_deleted_records"
	buildsGone = "SELECT count(*) FROM changes WHERE at_table = 'builds'"
)

// betweenCommitAndRemoval stops a worker that has committed the deletion of five parents'
// builds in ci before it removes the tombstones in main.
func betweenCommitAndRemoval(t *testing.T, s *multiSite) (w *runningWorker, pass, release func()) {
	s.main.exec(t, "CREATE TRIGGER note_change AFTER DELETE ON "+tombstones+
		" FOR EACH ROW EXECUTE FUNCTION note_change()")
	pass, release = s.main.shut(t, tombstones)
	s.deleteParents(t, someParents)
	w = s.started(t)
	s.main.wait(t, time.Minute, "the worker to stop in the removal", dbtest.AtGate)
	require.Equal(t, int64(20), s.ci.count(t, buildsGone), "deletions committed in ci")
	require.Equal(t, int64(5), s.main.count(t, backlogOf), "tombstones in main")
	return w, pass, release
}

// testMultiKilledBetween kills a worker between the two commits. Whoever comes next finds
// the tombstones and nothing left to be done.
func testMultiKilledBetween(t *testing.T, p program) {
	s := newMultiSite(t, p, layout{})
	first, pass, _ := betweenCommitAndRemoval(t, s)
	s.jobs.kill(t, first)
	pass()
	s.deleteParents(t, "id BETWEEN 4 AND 9")
	second := s.started(t)
	s.cleaned(t)
	second.stop(t)
	s.settled(t)
}

// testMultiCommitIsDurable crashes the server of ci between the two commits: what is gone
// there must stay gone, although the server writes its log to the disk only when it is
// asked to. What a database does to its own children need not wait for the disk.
func testMultiCommitIsDurable(t *testing.T, p program) {
	server := pgtest.Server(t)
	s := newMultiSite(t, p, layout{urls: map[string]string{"ci": pgtest.NewOn(t, server).URL}})
	s.ci.exec(t, "ALTER SYSTEM SET wal_writer_delay = '10s'")
	s.ci.exec(t, "SELECT pg_reload_conf()")
	w, pass, release := betweenCommitAndRemoval(t, s)
	s.ci.restart(t, server)
	require.Equal(t, int64(20), s.ci.count(t, buildsGone), "deletions in ci after the crash")
	pass()
	release()
	s.hurried(t)
	w.stop(t)
	s.settled(t)
	for _, at := range s.places() {
		require.Zero(t,
			at.count(t, "SELECT count(*) FROM changes WHERE at_table NOT IN ('links', $1) AND commits <> 'on'",
				tombstones), "batches for other databases in %s", at.name)
	}
	require.NotZero(t, s.sec.count(t, "SELECT count(*) FROM changes WHERE at_table = 'links' AND commits = 'off'"),
		"batches of sec for itself")
}

// inBatchElsewhere stops a worker behind its first DELETE in ci, for parents in main.
func inBatchElsewhere(t *testing.T, s *multiSite) (w *runningWorker, pass, release func()) {
	pass, release = s.ci.shut(t, "builds")
	s.deleteParents(t, someParents)
	w = s.started(t)
	s.ci.wait(t, time.Minute, "the worker to stop behind a DELETE", dbtest.AtGate)
	require.Zero(t, s.ci.count(t, "SELECT count(*) FROM changes"), "changes committed")
	return w, pass, release
}

// testMultiStoppedInBatch stops a process whose session in ci is between DELETE and
// COMMIT until its lease is over.
func testMultiStoppedInBatch(t *testing.T, p program) {
	s := newMultiSite(t, p, layout{jobs: "sec"})
	first, pass, release := inBatchElsewhere(t, s)
	first.signal(t, syscall.SIGSTOP)
	pass()
	s.takenOver(t, first, release)
	require.Zero(t, s.ci.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("1")),
		"changes of the worker that stood still in its first batch")
}

// testMultiStoppedBetweenBatches stops a process whose session in ci then is idle and
// stays alive: only the fence there keeps it from going on.
func testMultiStoppedBetweenBatches(t *testing.T, p program) {
	s := newMultiSite(t, p, layout{jobs: "sec"})
	first, _, release := inBatchElsewhere(t, s)
	first.signal(t, syscall.SIGSTOP)
	release()
	s.ci.wait(t, time.Minute, "the stopped worker's batch to end", "EXISTS (SELECT FROM changes)")
	s.takenOver(t, first, func() {})
	require.NotZero(t, s.ci.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("1")),
		"changes before the worker stood still")
}

// takenOver expires main's lease of a worker that stands still, lets passes in the
// foreground finish, and the first one go on where there is new work.
func (s *multiSite) takenOver(t *testing.T, first *runningWorker, release func()) {
	s.jobs.exec(t, "UPDATE sexton.leases SET expires_at = clock_timestamp() WHERE key = $1", leaseKey)
	require.Equal(t, "done", s.pass(t, "main").Outcome)
	require.Zero(t, s.main.count(t, backlogOf), "tombstones in main")
	for _, at := range []*home{&s.main, &s.ci} {
		require.Equal(t, int64(2), at.count(t, "SELECT DISTINCT token FROM sexton.fences WHERE key = $1", leaseKey),
			"fence of main's lease in %s", at.name)
	}
	release()
	earlier := "SELECT count(*) FROM changes WHERE " + changedUnder("1")
	before := s.ci.count(t, earlier)
	s.deleteParents(t, "id BETWEEN 6 AND 9")
	first.signal(t, syscall.SIGCONT)
	first.logged(t, `"msg":"run_failed"`)
	first.logged(t, "lease lost")
	s.hurried(t)
	require.Equal(t, before, s.ci.count(t, earlier), "changes under a token whose lease has passed on")
	first.stop(t)
	s.settled(t)
}
