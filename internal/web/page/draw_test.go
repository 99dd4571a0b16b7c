package page

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/components"
	"sexton/internal/jobrun"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "under a second", 300 * time.Millisecond: "under a second", 1540 * time.Millisecond: "1.5 s",
		9 * time.Second: "9 s", 59900 * time.Millisecond: "59 s",
		time.Minute: "1 min", 95 * time.Second: "1 min 35 s", time.Hour: "1 h", 125 * time.Minute: "2 h 5 min",
		24 * time.Hour: "1 d", 77 * time.Hour: "3 d 5 h",
	} {
		require.Equal(t, want, span(d))
	}
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	require.Equal(t, moment{
		Machine: "2030-01-02T03:03:00Z", Exact: "2030-01-02 03:03:00 UTC",
		Relative: "1 min 5 s ago",
	}, momentAt(now, now.Add(-65*time.Second)))
	require.Equal(t, "in 2 s", momentAt(now, now.Add(2500*time.Millisecond)).Relative)
	require.Equal(t, "just now", momentAt(now, now).Relative)
	for text, want := range map[string]string{
		"": "", "paused": "Paused", "ärger": "Ärger", "\"x\" is": "\"x\" is",
		"\xff": "\xff",
	} {
		require.Equal(t, want, sentence(text))
	}
}

func TestChart(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	series := []jobrun.Series{
		{Table: "a", Database: "main", Points: []jobrun.Point{
			{At: 999_000, Pending: 5, Finished: 45},
			{At: 999_030, Pending: 6, OldestAgeSeconds: 1.5},
		}},
		{Table: "a", Database: "ci", Points: []jobrun.Point{{At: 999_030, Pending: 7}, {At: 999_900, Pending: 8}}},
	}
	tables := []components.Backlog{
		{Table: "a", Database: "main", Pending: 9, OldestAgeSeconds: 2},
		{Table: "a", Database: "ci", Unreachable: "down"},
		{Table: "b", Database: "main", Pending: 1},
	}
	encoded, err := json.Marshal(newChart(stretches()[0], series, tables, now))
	require.NoError(t, err)
	// The chart has a gap after 999,030, because more than three bins have no sample.
	require.JSONEq(t, `{"span": 3600, "now": 1000000, "at": [999000, 999030, 999031, 999900, 999901, 1000000], "series": [
		{"label": "a in main", "pending": [5, 6, null, null, null, 9], "oldest": [0, 1.5, null, null, null, 2], "rate": [1.5, 0, null, null, null, null]},
		{"label": "a in ci", "pending": [null, 7, null, 8, null, null], "oldest": [null, 0, null, 0, null, null], "rate": [null, 0, null, 0, null, null]},
		{"label": "b in main", "pending": [null, null, null, null, null, 1], "oldest": [null, null, null, null, null, 0], "rate": [null, null, null, null, null, null]}]}`, string(encoded))
	require.Len(t, series[0].Points, 2, "the shared series are unchanged")

	empty, err := json.Marshal(newChart(stretches()[1], nil, nil, now))
	require.NoError(t, err)
	require.JSONEq(t, `{"span": 86400, "now": 1000000, "at": [], "series": []}`, string(empty))
}

func TestSpark(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	series := []jobrun.Series{{
		Table: "a", Database: "main",
		Points: []jobrun.Point{{At: now.Unix() - 3600, Pending: 0}, {At: now.Unix() - 1800, Pending: 10}},
	}}
	require.Equal(t, "0.0,29.0 60.0,1.0 120.0,15.0", spark(series,
		components.Backlog{Table: "a", Database: "main", Pending: 5}, now))
	series[0].Points = []jobrun.Point{{At: now.Unix() - 300, Pending: 0}, {At: now.Unix() - 150, Pending: 10}}
	require.Equal(t, "0.0,29.0 60.0,1.0 120.0,15.0", spark(series,
		components.Backlog{Table: "a", Database: "main", Pending: 5}, now))
	require.Empty(t, spark(series, components.Backlog{Table: "b", Database: "main"}, now))
	require.Empty(t, spark(nil, components.Backlog{Table: "a", Database: "main"}, now))
}
