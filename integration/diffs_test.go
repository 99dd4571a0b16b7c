package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// testDiffs moves diffs as they come in, with two workers and passes in the foreground at once and one worker killed in the
// middle of an upload, and has objects removed with their merge request. Nothing but the triggers wakes the workers.
func testDiffs(t *testing.T, p program, store diffStore) {
	t.Helper()
	s := newDiffSite(t, p, store)
	first, second := s.started(t), s.started(t)
	for lot := range 5 {
		s.exec(t, addDiffs, lot*8+1, lot*8+8)
		outcome := parseReport(t, s.program.run(t, s.dir, s.url, 0, "job", "run", scheduleDiffs, "--json")).Outcome
		require.Contains(t, []string{"done", "skipped"}, outcome, "a pass in the foreground beside two workers")
	}
	s.wait(t, time.Minute, "all diffs to be moved", allMoved)
	s.sleeps(t)
	s.wakes(t, addDiffs, 41, 41)
	s.wait(t, time.Minute, "a diff to be moved that came to sleeping workers", allMoved)
	s.sleeps(t)
	second.stop(t)

	third := s.killedInUpload(t, first)
	s.wait(t, time.Minute, "another worker to move the big diff", allMoved)
	s.sleeps(t)
	require.Zero(t, s.count(t, `SELECT count(*) FROM sexton.runs WHERE kind = $1 AND outcome = 'failed'`, moveDiff), "failed moves")
	diffs, _ := s.readable(t)
	require.Equal(t, 42, diffs)

	s.removedWithItsRequest(t)
	s.sleeps(t)
	third.stop(t)
	s.cleanedUp(t)
	s.changesNothingMore(t)
	diffs, size := s.readable(t)
	require.Equal(t, 22, diffs)
	require.Equal(t, fmt.Sprintf("%[1]d diffs of %[2]d bytes, %[1]d objects: 0 damaged, 0 dangling\n", diffs, size),
		s.program.run(t, s.dir, s.url, 0, "diffs", "verify", "--grace", "0s"))
}

// wakes runs a statement that has to wake a sleeping worker. Without that it would look by itself, later.
func (s diffSite) wakes(t *testing.T, sql string, args ...any) {
	t.Helper()
	listener := connect(t, s.url)
	pgtest.Exec(t, listener, "LISTEN sexton_wake")
	s.exec(t, sql, args...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	woken, err := listener.WaitForNotification(ctx)
	require.NoError(t, err, "wait for the wake-up")
	require.Equal(t, scheduleDiffs, woken.Payload)
}

// killedInUpload kills a worker in the middle of the upload of a big diff and returns another one, which has to finish it. The
// diff is as it was meanwhile.
func (s diffSite) killedInUpload(t *testing.T, first *runningWorker) *runningWorker {
	t.Helper()
	const key = "merge_request_diffs/mr-3/diff-1000"
	pgtest.Exec(t, connect(t, s.url), "SELECT pg_advisory_lock($1)", gate)
	s.exec(t, "INSERT INTO closed_gate VALUES (now())")
	s.exec(t, addBigDiff)
	s.wait(t, time.Minute, "the worker to stop in the upload", atGate)
	pgtest.WaitFor(t, "the upload to begin", func(context.Context) (bool, error) { return s.store.begun(key), nil })
	s.exec(t, "DELETE FROM closed_gate")
	second := s.started(t)
	// As if the time had passed after which the claim of a dead worker ends.
	s.bury(t, first)
	s.exec(t, "UPDATE sexton.external_diffs SET busy_until = clock_timestamp() WHERE diff_id = 1000")
	// What a dead worker did is noted by a move that comes minutes later, as several run at once.
	s.exec(t, "DELETE FROM sexton.runs WHERE kind = $1 AND ended_at IS NULL AND holder LIKE $2", moveDiff, fmt.Sprintf("%%:%d:%%", first.cmd.Process.Pid))
	require.NoFileExists(t, s.store.path(key), "an object of which a part is missing")
	const texts = "SELECT count(*) FROM merge_request_diff_files WHERE merge_request_diff_id = 1000 AND diff IS NOT NULL"
	require.EqualValues(t, 2, s.count(t, texts), "texts in the database")
	return second
}

// removedWithItsRequest deletes a merge request. Its objects are there as long as the deletion can be taken back, and no longer.
func (s diffSite) removedWithItsRequest(t *testing.T) {
	t.Helper()
	deleter := connect(t, s.url)
	for _, end := range []string{"ROLLBACK", "COMMIT"} {
		pgtest.Exec(t, deleter, "BEGIN; DELETE FROM merge_requests WHERE id = 1")
		s.sleeps(t)
		for id := 2; id <= 40; id += 2 {
			require.FileExists(t, s.store.path(fmt.Sprintf("merge_request_diffs/mr-1/diff-%d", id)), "before %s", end)
		}
		pgtest.Exec(t, deleter, end)
	}
	for id := 2; id <= 40; id += 2 {
		pgtest.WaitFor(t, fmt.Sprintf("the object of diff %d to go", id), func(context.Context) (bool, error) {
			_, err := os.Stat(s.store.path(fmt.Sprintf("merge_request_diffs/mr-1/diff-%d", id)))
			return errors.Is(err, fs.ErrNotExist), nil
		})
	}
	s.wait(t, time.Minute, "the removals to be struck", "NOT EXISTS (SELECT FROM sexton.external_diff_removals)")
}

// changesNothingMore runs both jobs once more.
func (s diffSite) changesNothingMore(t *testing.T) {
	t.Helper()
	s.exec(t, "UPDATE sexton.external_diff_cursors SET after_id = 0")
	before := s.rows(t)
	require.Equal(t, "done", parseReport(t, s.program.run(t, s.dir, s.url, 0, "job", "run", scheduleDiffs, "--json")).Outcome)
	var again struct {
		Outcome, Reason string
	}
	report := s.program.run(t, s.dir, s.url, 0, "job", "run", moveDiff, "--args", `{"diff_id": 1}`, "--json")
	require.NoError(t, json.Unmarshal([]byte(report), &again))
	require.Equal(t, "done: already_external", again.Outcome+": "+again.Reason)
	require.Equal(t, before, s.rows(t), "one run more has changed rows")
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE finalized_at IS NULL"), "jobs left")
}
