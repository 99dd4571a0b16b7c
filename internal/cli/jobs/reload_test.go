package jobs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	riverjobs "sexton/river_jobs"
)

// A message of River that repeats is logged once per interval, with the number of
// messages left out. Messages about a job are all logged.
func TestRiverLogIsLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const skipped = "maintenance.PeriodicJobEnqueuer: " + riverjobs.Skipped
		var text bytes.Buffer
		limited := limitRiverLog(slog.New(slog.NewTextHandler(&text, nil)))
		log := slog.New(limited)
		for range 50 {
			log.Info(skipped, "client", "one")
			log.With("client", "two").Info(skipped)
			log.Error("producer: Error fetching jobs", "err", "gone", "queue", "one")
			log.Error("producer: Error fetching jobs", "err", "gone", "queue", "two")
			log.Error("executor: Error completing job", "err", "gone", "job_id", 7)
		}
		limited.Flush()
		require.NotContains(t, text.String(), riverjobs.Skipped)
		require.Equal(t, 50, strings.Count(text.String(), "Error completing job"))
		require.NotContains(t, text.String(), "job_id=7 left_out")
		require.Equal(t, 2, strings.Count(text.String(), "Error fetching jobs"))
		require.Contains(t, text.String(), "queue=two left_out=98\n")
	})
}
