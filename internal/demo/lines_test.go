package demo

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/jobrun"
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
				Latency:       jobrun.Percentiles{P50: 12.4, P90: 20, P99: 1234.5, Max: 2000},
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

// picture is a panel without colours.
func picture(p panel, state State, traces ...trace) string {
	for len(traces) < len(state.Scenes) {
		traces = append(traces, trace{backlog: []float64{0, 1}, speed: []float64{1, 1}})
	}
	text := control.ReplaceAllString(strings.Join(p.lines(state, traces), "\n"), "")
	return "\n" + strings.ReplaceAll(text, " \n", "\n") + "\n"
}

func TestPanel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		width, height int
		want          string
	}{
		"80 columns": {80, 24, `
  loose foreign keys  [-------------------]  1,234 of 56,789 parents deleted
  backlog   ▁█           1,002 tombstones wait, oldest 2.3 s, 4,000 paid off
  times     p50 12 ms, p99 1234 ms, from commit to clean
  speed     ██           34,567 rows/s
  so far    1,200,104 rows deleted, 15 nullified or updated
  worker    works (run 3)
  most in   notes 1,200,000, events 35, labels 34, todos 34

  ghost users         [===================]  30 of 30 users deleted
  backlog   ▁█           1 user waits, oldest 0.0 s, 29 gone
  times     -
  speed     ██           0 rows/s
  so far    500 rows moved, 42 deleted, 3 nullified
  worker    waits for a lock
  most in   notes.author_id 502, todos.user_id 40, projects.creator_id 3

  Ctrl-C
`},
		"40 columns": {40, 24, `
  loose foreign keys  1,234 of 56,789
  backlog   1,002 tombstones wait
  times     p50 12 ms, p99 1234 ms
  speed     34,567 rows/s
  so far    1,200,104 rows deleted
  worker    works (run 3)
  most in   notes 1,200,000, events 35

  ghost users         30 of 30
  backlog   1 user waits, oldest 0.0 s
  times     -
  speed     0 rows/s
  so far    500 rows moved, 42 deleted
  worker    waits for a lock
  most in   notes.author_id 502

  Ctrl-C
`},
		"few rows": {80, 8, `
  loose foreign keys  [-------------------]  1,234 of 56,789 parents deleted
  backlog   ▁█           1,002 tombstones wait, oldest 2.3 s, 4,000 paid off
  ghost users         [===================]  30 of 30 users deleted
  backlog   ▁█           1 user waits, oldest 0.0 s, 29 gone
  Ctrl-C
`},
		"hardly any": {9, 2, `
  loose
  ghost
  Ctrl-C
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, picture(panel{width: test.width, height: test.height, closing: "Ctrl-C"}, busy()))
		})
	}
}

// A usual terminal has the times of all five jobs, and a narrow one breaks no word.
func TestPanelOfAllScenes(t *testing.T) {
	t.Parallel()
	state := busy()
	one := state.Scenes[0]
	one.Activity = "waits for 2 placeholder users put off until tomorrow"
	state.Scenes = []SceneState{one, one, one, one, one}
	for _, width := range []int{80, 40} {
		shown := picture(panel{width: width, height: 24, closing: "Ctrl-C"}, state)
		require.Equal(t, 5, strings.Count(shown, "  times     p50 12 ms, p99 1234 ms"), shown)
		require.LessOrEqual(t, strings.Count(shown, "\n"), 24)
	}
	require.Contains(t, picture(panel{width: 40, height: 60, closing: "Ctrl-C"}, state), "\n  worker    waits for 2 placeholder…\n")
	require.Equal(t, []string{"a", "ab…", "ab…", "ab c", "…"}, []string{shorten("a", 1), shorten("ab cd", 4), shorten("ab, cd", 4), shorten("ab c", 4), shorten("abc", 1)})
	state.Over = true
	require.Contains(t, picture(panel{width: 80, height: 24, closing: "Ctrl-C"}, state), "\n  "+nothingLeft+"\n")
	var lines strings.Builder
	view := NewLines(&lines)
	view.Show(state)
	view.Show(state)
	require.Equal(t, 1, strings.Count(lines.String(), "\n"+nothingLeft+"\n"), "once")
}

func TestPanelOfASceneThatCountsNoRows(t *testing.T) {
	t.Parallel()
	state := busy()
	state.Scenes = state.Scenes[1:]
	state.Scenes[0].Script.Rows = nil
	require.Equal(t, `
  ghost users         [===================]  30 of 30 users deleted
  backlog   ▁█           1 user waits, oldest 0.0 s, 29 gone
  times     -
  worker    waits for a lock

  Ctrl-C
`, picture(panel{width: 80, height: 24, closing: "Ctrl-C"}, state))
}

func TestBar(t *testing.T) {
	t.Parallel()
	for want, of := range map[string][2]int64{
		"[--------]": {0, 10}, "[>-------]": {2, 10}, "[=======>--------]": {8, 16}, "[===>----]": {5, 10}, "[========]": {10, 10},
	} {
		require.Equal(t, want, bar(of[0], of[1], len(want)))
	}
	require.Equal(t, "[====]", bar(0, 0, 6), "where nothing is planned all is done")
	require.Equal(t, "[====]", bar(9, 3, 6))
}

func TestSpark(t *testing.T) {
	t.Parallel()
	for want, values := range map[string][]float64{
		"▁          ": {0},
		"▁▁▁        ": {0, 0, 0},
		"█          ": {0.001},
		"▁▁▄██      ": {0, 1, 7, 14, 14},
		"▁▂▃▄▅▆▇█   ": {0, 1, 2, 3, 4, 5, 6, 7},
		"▁█▁        ": {0, math.MaxFloat64, 1},
		"▁▁▁▁▁▁▁▁▁  ": {1, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"           ": nil,
	} {
		require.Equal(t, want, spark(values, 9), "%v", values)
	}
	require.Empty(t, spark([]float64{1, 2}, 0))
}

func TestSparksRememberTheLastReadings(t *testing.T) {
	t.Parallel()
	var values []float64
	for i := range longestSpark + 5 {
		values = remember(values, float64(i))
		require.Len(t, values, min(i+1, longestSpark))
		require.InDelta(t, i, values[len(values)-1], 0)
	}
	require.InDelta(t, 5, values[0], 0)
}

func TestSummaryText(t *testing.T) {
	t.Parallel()
	summary := newSummary(Site{Rows: 200000}, busy(), 25040*time.Millisecond)
	require.Equal(t, `
ended after 25.0 s
loose foreign keys: 1,234 parents deleted, 1,200,104 rows deleted, 15 nullified or updated
  from commit to clean: p50 12.4 ms, p99 1234.5 ms
ghost users: 30 users deleted, 500 rows moved, 42 deleted, 3 nullified
`, summary.Text())

	summary.found(1, []Finding{{Name: "users_left", Text: "users are left"}, {Name: "contributions", Text: "contributions", Count: 4567}})
	summary.found(0, []Finding{{Name: orphansLeft, Text: "orphans are left"}})
	out := summary.Text()
	require.Contains(t, out, "p99 1234.5 ms\n  0 orphans are left\nghost users: ")
	require.Contains(t, out, "ghost users: 30 users deleted, 500 rows moved, 42 deleted, 3 nullified\n  0 users are left\n  4,567 contributions\n")
}

func TestSummaryHasAnObjectPerJob(t *testing.T) {
	t.Parallel()
	summary := newSummary(Site{Rows: 17}, busy(), 1500*time.Millisecond)
	require.Nil(t, summary.OrphansLeft)
	summary.found(1, []Finding{{Name: "users_left"}, {Name: "contributions", Count: 4567}})
	text, err := json.Marshal(summary)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"rows_loaded": 17, "parents_deleted": 1234, "children_deleted": 1200104, "children_nullified": 15, "children_updated": 0,
		"orphans_left": null, "p50_latency_ms": 12.4, "p99_latency_ms": 1234.5, "seconds": 1.5,
		"jobs": {
			"loose_foreign_keys_cleanup": {
				"acted": 1234, "planned": 56789, "waiting": 1002, "p50_latency_ms": 12.4, "p99_latency_ms": 1234.5, "check": null,
				"runs": 3, "processed": 4000, "errors": 0,
				"delete_count_by_table": {"notes": 1200000, "todos": 34, "labels": 34, "events": 35, "uploads": 1},
				"update_count_by_table": {"p_ci_builds": 7, "reviews": 8}
			},
			"users_migrate_records_to_ghost_user_in_batches": {
				"acted": 30, "planned": 30, "waiting": 1, "p50_latency_ms": 0, "p99_latency_ms": 0, "check": {"users_left": 0, "contributions": 4567},
				"runs": 0, "users_processed": 29, "errors": 0,
				"moved": {"notes.author_id": 500}, "deleted": {"todos.user_id": 40, "notes.author_id": 2}, "nullified": {"projects.creator_id": 3}
			}
		}
	}`, string(text))
}

func TestSummaryTellsUpdatesFromNullifications(t *testing.T) {
	t.Parallel()
	state := State{Scenes: []SceneState{{
		Script: (*looseForeignKeys)(nil).Script(), Acted: 2,
		Tally: Tally{ByTable: map[string]map[string]int64{
			"delete_count_by_table": {"a": 3, "b": 4}, "update_count_by_table": {"kids": 5, "app.kids": 6, "others": 7},
		}},
	}}}
	summary := newSummary(Site{Definitions: parsed(t, `
kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 1}]
app.kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 1}]
others: [{table: parents, column: parent_id, on_delete: async_nullify}]
`)}, state, 0)
	require.EqualValues(t, 2, summary.ParentsDeleted)
	require.Equal(t, []int64{7, 7, 11}, []int64{summary.ChildrenDeleted, summary.ChildrenNullified, summary.ChildrenUpdated})
}
