package riverjobs

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// LatestTick returns the same tick as a loop over all ticks.
func TestLatestTickMatchesAWalkOverAllTicks(t *testing.T) {
	t.Parallel()

	expressions := []string{
		"* * * * *", "*/7 * * * *", "0 0 * * *", "* 3 * * *", "15 * * * *", "0 2 * * 1",
		"30 4 1 * *", "0 0 31 12 *", "CRON_TZ=Europe/Berlin 30 2 * * *",
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		expression := rapid.SampledFrom(expressions).Draw(t, "expression")
		after := start.Add(time.Duration(rapid.Int64Range(0, int64(400*24*time.Hour)).Draw(t, "after")))
		gap := rapid.SampledFrom([]time.Duration{time.Minute, time.Hour, 50 * time.Hour, 60 * 24 * time.Hour}).Draw(t,
			"scale")
		now := after.Add(time.Duration(rapid.Int64Range(-int64(time.Minute), int64(gap)).Draw(t, "gap")))
		s, err := cron.ParseStandard(expression)
		require.NoError(t, err)

		want := time.Time{}
		for tick := s.Next(after); !tick.After(now); tick = s.Next(tick) {
			want = tick
		}
		require.Equal(t, want, LatestTick(s, after, now), "%s after %s until %s", expression, after, now)
	})
}

func TestLatestTickOfAnInterval(t *testing.T) {
	t.Parallel()

	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	every := cron.Every(90 * time.Second)
	require.Zero(t, LatestTick(every, start, start.Add(89*time.Second)))
	require.Equal(t, start.Add(90*time.Second), LatestTick(every, start, start.Add(91*time.Second)))
	year := start.AddDate(1, 0, 0)
	tick := LatestTick(every, start, year)
	require.False(t, tick.After(year), "tick at %s", tick)
	require.Less(t, year.Sub(tick), 90*time.Second)
}

func TestLatestTickOfAScheduleWithoutTicks(t *testing.T) {
	t.Parallel()

	s, err := cron.ParseStandard("0 0 31 2 *")
	require.NoError(t, err)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Zero(t, LatestTick(s, start, start.AddDate(20, 0, 0)))
}

// ticks returns the minutes since the epoch, below 12, at which the rotated schedule
// ticks.
func ticks(t *testing.T, spec string, index, of int) []int {
	parsed, err := cron.ParseStandard(spec)
	require.NoError(t, err)
	rotated := Rotate(parsed, index, of)
	start := time.Unix(0, 0).UTC() // The epoch begins at minute 0.
	var minutes []int
	for tick := rotated.Next(start.Add(-time.Second)); !tick.IsZero() &&
		tick.Before(start.Add(12*time.Minute)); tick = rotated.Next(tick) {
		minutes = append(minutes, int(tick.Sub(start)/time.Minute))
	}
	return minutes
}

func TestRotate(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, ticks(t, "* * * * *", 0, 1),
		"a single database is served by every tick")
	require.Equal(t, []int{0, 3, 6, 9}, ticks(t, "* * * * *", 0, 3))
	require.Equal(t, []int{1, 4, 7, 10}, ticks(t, "* * * * *", 1, 3))
	require.Equal(t, []int{2, 5, 8, 11}, ticks(t, "* * * * *", 2, 3))
	require.Equal(t, []int{0, 5, 10}, ticks(t, "*/5 * * * *", 1, 5),
		"a tick before a longer gap serves all databases")
	require.Equal(t, []int{0, 2, 3}, ticks(t, "0-3 * * * *", 0, 2), "the last tick before a gap serves all databases")

	never, err := cron.ParseStandard("0 0 30 2 *")
	require.NoError(t, err)
	require.True(t, Rotate(never, 0, 2).Next(time.Unix(0, 0)).IsZero())
}
