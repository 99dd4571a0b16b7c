package demo

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/latency"
	"sexton/internal/words"
)

// busy is a state in which every part has something to show.
func busy() State {
	loose, ghost := (*looseForeignKeys)(nil).Script(), (*ghostUsers)(nil).Script()
	return State{
		Elapsed: 12600 * time.Millisecond,
		Scenes: []SceneState{
			{
				Script: loose, Acted: 1234, Planned: 56789, Backlog: 1002, Oldest: 2345 * time.Millisecond,
				Tally: Tally{
					Runs: 3, Numbers: map[string]int64{"processed": 4000},
					ByTable: map[string]map[string]int64{
						"delete_count_by_table": {"notes": 1200000, "todos": 34, "labels": 34, "events": 35, "uploads": 1},
						"update_count_by_table": {"p_ci_builds": 7, "reviews": 8},
					},
				},
				RowsPerSecond: 34567.8,
				Latency:       latency.Percentiles{P50: 12.4, P90: 20, P99: 1234.5, Max: 2000},
				Activity:      "works (run 3)",
			},
			{
				Script: ghost, Acted: 30, Planned: 30, Done: true, Backlog: 1,
				Tally: Tally{
					Numbers: map[string]int64{"users_processed": 29},
					ByTable: map[string]map[string]int64{
						"moved": {"notes.author_id": 500}, "deleted": {"todos.user_id": 40, "notes.author_id": 2}, "nullified": {"projects.creator_id": 3},
					},
				},
				Activity: "waits for a lock",
			},
		},
	}
}

func TestLinesShowEveryScene(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := NewLines(&out)
	l.Show(busy())
	l.Close()
	require.Equal(t, ` 13 s | loose foreign keys: 1,234 of 56,789 parents deleted | 1,002 tombstones wait, oldest 2.3 s, 4,000 paid off | `+
		"1,200,104 rows deleted, 15 nullified or updated, 34,567 rows/s | from commit to clean: p50 12 ms, p99 1234 ms | works (run 3)\n"+
		` 13 s | ghost users: 30 of 30 users deleted, no more to come | 1 user waits, oldest 0.0 s, 29 gone | `+
		"500 rows moved, 42 deleted, 3 nullified, 0 rows/s | from request to gone: - | waits for a lock\n", out.String())
	require.Equal(t, time.Second, NewLines(nil).Interval())
}

func TestLinesTellEveryTenthOfTheLoad(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := NewLines(&out)
	for _, done := range []int64{0, 100, 199, 200, 399, 400, 401, 1500, 1599, 2000, 2000} {
		l.Loaded(done, 2000)
	}
	require.Equal(t, `loading sample data: 200 of 2,000 rows
loading sample data: 400 of 2,000 rows
loading sample data: 1,500 of 2,000 rows
loading sample data: 2,000 of 2,000 rows
`, out.String())
	out.Reset()
	NewLines(&out).Loaded(0, 0)
	require.Empty(t, out.String())
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 12345: "12,345", 123456: "123,456", 1234567: "1,234,567",
		-1: "-1", -999: "-999", -1000: "-1,000", -123456: "-123,456", -1234567: "-1,234,567",
		math.MaxInt64: "9,223,372,036,854,775,807", math.MinInt64: "-9,223,372,036,854,775,808",
	} {
		require.Equal(t, want, words.Grouped(n))
	}
}

func TestTablesThatLostMost(t *testing.T) {
	t.Parallel()
	tally := busy().Scenes[0].Tally
	require.Equal(t, []string{"notes 1,200,000", "events 35", "labels 34", "todos 34"}, tally.tables(4), "equals by name")
	require.Equal(t, []string{"notes 1,200,000"}, tally.tables(1))
	require.Len(t, tally.tables(100), 7)
	require.Empty(t, Tally{}.tables(4))
	require.Empty(t, tally.tables(0))
	require.Equal(t, []string{"notes.author_id 502"}, busy().Scenes[1].Tally.tables(1), "of all sorts together")
}
