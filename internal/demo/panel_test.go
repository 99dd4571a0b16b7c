package demo

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
  speed     ██           34,567 rows/s
  so far    1,200,104 rows deleted, 15 nullified or updated
  times     p50 12 ms, p99 1234 ms, from commit to clean
  worker    works (run 3)
  most in   notes 1,200,000, events 35, labels 34, todos 34

  ghost users         [===================]  30 of 30 users deleted
  backlog   ▁█           1 user waits, oldest 0.0 s, 29 gone
  speed     ██           0 rows/s
  so far    500 rows moved, 42 deleted, 3 nullified
  times     -
  worker    waits for a lock
  most in   notes.author_id 502, todos.user_id 40, projects.creator_id 3

  Ctrl-C
`},
		"40 columns": {40, 24, `
  loose foreign keys  1,234 of 56,789
  backlog   1,002 tombstones wait
  speed     34,567 rows/s
  so far    1,200,104 rows deleted
  times     p50 12 ms, p99 1234 ms
  worker    works (run 3)
  most in   notes 1,200,000, events 35

  ghost users         30 of 30
  backlog   1 user waits, oldest 0.0 s
  speed     0 rows/s
  so far    500 rows moved, 42 deleted
  times     -
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
