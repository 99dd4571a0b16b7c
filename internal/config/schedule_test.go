package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
)

func TestSchedule(t *testing.T) {
	t.Parallel()

	at := time.Date(2024, 2, 28, 23, 59, 30, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"* * * * *":         time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC),
		"0 0 29 2 *":        time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC),
		"*/15 8 * * mon":    time.Date(2024, 3, 4, 8, 0, 0, 0, time.UTC),
		"@every 90s":        at.Add(90 * time.Second),
		"TZ=UTC 30 1 * * *": time.Date(2024, 2, 29, 1, 30, 0, 0, time.UTC),
	} {
		schedule, err := config.Schedule(text).Parse()
		require.NoError(t, err, text)
		require.Equal(t, want, schedule.Next(at), text)
	}
	for text, want := range map[string]string{
		"":                          "has 0 fields; a cron expression has five: minute, hour, day of month, month, day of week",
		"* * * *":                   "has 4 fields; a cron expression has five: minute, hour, day of month, month, day of week",
		"0 * * * * *":               "has 6 fields; a cron expression has five: minute, hour, day of month, month, day of week",
		"60 * * * *":                "its field 1, the minute, cannot be read",
		"* 24 * * *":                "its field 2, the hour, cannot be read",
		"* * 0 * *":                 "its field 3, the day of month, cannot be read",
		"* * * foo *":               "its field 4, the month, cannot be read",
		"* * * * 5-1":               "its field 5, the day of week, cannot be read",
		"0 0 31 2 *":                "never fires: no such date exists",
		"0 0 31 4,6,9,11 *":         "never fires: no such date exists",
		"@weekdays":                 "is none of @yearly, @monthly, @weekly, @daily, @hourly and @every with a duration",
		"@every soon":               "is none of @yearly, @monthly, @weekly, @daily, @hourly and @every with a duration",
		"TZ=UTC":                    "has 0 fields; a cron expression has five: minute, hour, day of month, month, day of week",
		"TZ=Nowhere/Else * * * * *": "names an unknown time zone",
	} {
		_, err := config.Schedule(text).Parse()
		require.EqualError(t, err, want, text)
	}
}
