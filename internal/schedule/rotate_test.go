package schedule_test

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"sexton/internal/schedule"
)

// ticks are the minutes of the day at which a schedule ticks within an hour and a half of midnight.
func ticks(t *testing.T, spec string, index, of int) []int {
	t.Helper()
	parsed, err := cron.ParseStandard(spec)
	require.NoError(t, err)
	rotated := schedule.Rotate(parsed, index, of)
	start := time.Unix(0, 0).UTC() // Minute 0 of the epoch.
	var minutes []int
	for at := rotated.Next(start.Add(-time.Second)); !at.IsZero() && at.Before(start.Add(12*time.Minute)); at = rotated.Next(at) {
		minutes = append(minutes, int(at.Sub(start)/time.Minute))
	}
	return minutes
}

func TestRotate(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, ticks(t, "* * * * *", 0, 1), "alone it has every turn")
	require.Equal(t, []int{0, 3, 6, 9}, ticks(t, "* * * * *", 0, 3))
	require.Equal(t, []int{1, 4, 7, 10}, ticks(t, "* * * * *", 1, 3))
	require.Equal(t, []int{2, 5, 8, 11}, ticks(t, "* * * * *", 2, 3))
	require.Equal(t, []int{0, 5, 10}, ticks(t, "*/5 * * * *", 1, 5), "a rare tick serves all, or it would always be the same one's turn")
	require.Equal(t, []int{0, 2, 3}, ticks(t, "0-3 * * * *", 0, 2), "so does the last one before a pause")

	never, err := cron.ParseStandard("0 0 30 2 *")
	require.NoError(t, err)
	require.True(t, schedule.Rotate(never, 0, 2).Next(time.Unix(0, 0)).IsZero())
}
