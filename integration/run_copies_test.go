package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// streamTables adds enough parents for a stream of deletes.
const streamTables = `
INSERT INTO parents SELECT generate_series(11, 400);
INSERT INTO children SELECT number, number % 390 + 11 FROM generate_series(100, 3999) AS number;`

// testRunCopies lets two workers and passes in the foreground work on one stream of deletes.
func testRunCopies(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	s.exec(t, streamTables)
	first, second := s.started(t), s.started(t)

	streamed := make(chan error)
	go func() {
		var err error
		for id := 1; id <= 400 && err == nil; id++ {
			_, err = s.pool.Exec(t.Context(), "DELETE FROM parents WHERE id = $1", id)
		}
		streamed <- err
	}()
	for done := false; !done; {
		outcome := parseReport(t, p.run(t, s.dir, s.url, 0, "job", "run", kind, "--json")).Outcome
		require.Contains(t, []string{"done", "skipped"}, outcome, "a pass in the foreground beside two workers")
		select {
		case err := <-streamed:
			require.NoError(t, err, "delete parents")
			done = true
		default:
		}
	}
	s.wait(t, time.Minute, "everything to be finished", noWork)
	// Deleting a child twice would violate the primary key of deletions, and fail the pass.
	require.Equal(t, int64(4000), s.count(t, "SELECT count(*) FROM deletions"))
	require.Zero(t, s.count(t, "SELECT count(*) FROM children"))
	// A worker that is asked to stop while its pass begins counts that as failed.
	s.wait(t, time.Minute, "everything to be confirmed", "NOT EXISTS (SELECT FROM sexton.swept)")
	first.stop(t)
	second.stop(t)
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.runs WHERE outcome = 'failed'"), "failed runs")
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE state <> 'completed'"), "jobs that did not complete")
	s.cleanedUp(t)
}
