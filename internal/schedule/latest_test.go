package schedule

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The search agrees with a walk over all ticks.
func TestLatestIsTheLastTick(t *testing.T) {
	t.Parallel()

	expressions := []string{"* * * * *", "*/7 * * * *", "0 0 * * *", "* 3 * * *", "15 * * * *", "0 2 * * 1", "30 4 1 * *", "0 0 31 12 *", "CRON_TZ=Europe/Berlin 30 2 * * *"}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		expression := rapid.SampledFrom(expressions).Draw(t, "expression")
		after := start.Add(time.Duration(rapid.Int64Range(0, int64(400*24*time.Hour)).Draw(t, "after")))
		gap := rapid.SampledFrom([]time.Duration{time.Minute, time.Hour, 50 * time.Hour, 60 * 24 * time.Hour}).Draw(t, "scale")
		now := after.Add(time.Duration(rapid.Int64Range(-int64(time.Minute), int64(gap)).Draw(t, "gap")))
		s, err := cron.ParseStandard(expression)
		require.NoError(t, err)

		want := time.Time{}
		for tick := s.Next(after); !tick.After(now); tick = s.Next(tick) {
			want = tick
		}
		require.Equal(t, want, Latest(s, after, now), "%s after %s until %s", expression, after, now)
	})
}

func TestLatestOfAnInterval(t *testing.T) {
	t.Parallel()

	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	every := cron.Every(90 * time.Second)
	require.Zero(t, Latest(every, start, start.Add(89*time.Second)))
	require.Equal(t, start.Add(90*time.Second), Latest(every, start, start.Add(91*time.Second)))
	year := start.AddDate(1, 0, 0)
	tick := Latest(every, start, year)
	require.False(t, tick.After(year), "tick at %s", tick)
	require.Less(t, year.Sub(tick), 90*time.Second)
}

func TestLatestOfAScheduleThatNeverComes(t *testing.T) {
	t.Parallel()

	s, err := cron.ParseStandard("0 0 31 2 *")
	require.NoError(t, err)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Zero(t, Latest(s, start, start.AddDate(20, 0, 0)))
}
