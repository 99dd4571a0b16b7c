package bench

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/jobrun"
	"sexton/internal/words"
)

// lines are what a report shows, without the marks between cells.
func lines(t *testing.T, r *Report) []string {
	var out strings.Builder
	r.Text(&out)
	require.NotContains(t, out.String(), "\t", "the terminal's tables have marks of their own")
	return strings.Split(strings.ReplaceAll(out.String(), words.Separator, " | "), "\n")
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := &Report{Row: Row{{"rows", "", "", 3}, {"sets", "", "", []Row{{{"ms", "", "", nil}}}}, {"a&b", "", "", "<"}}}
	r.show(Row{{"k", "name", "%s", "one"}, {"", "MiB", "%.1f", mebibytes(new(int64(3 << 19)))}}, Row{{"", "name", "%s", "two"}, {"", "MiB", "%.1f", mebibytes(nil)}})
	r.show(Row{{"", "", "%s", "a line"}, {"", "", "%d", 7}})
	r.notef("%d notes", 1)
	require.Equal(t, []string{"name | MiB", "one | 1.5", "two | ", "", "a line | 7", "", "1 notes", ""}, lines(t, r))
	encoded, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"rows": 3, "sets": [{"ms": null}], "a&b": "<"}`, string(encoded))
	require.Equal(t, byte('{'), encoded[0])
	require.Less(t, strings.Index(string(encoded), "rows"), strings.Index(string(encoded), "sets"), "in order")
}

// What the benchmarks of whole drains compare, by outcomes in which Sexton takes 2 s where all others take 4 s, and writes twice the WAL.
func TestContests(t *testing.T) {
	t.Parallel()
	var variants []outcome
	for _, name := range []string{oneStatement, nativeCascade, inList, original, undoOff, undoOn, sexton} {
		one := measured{took: 4 * time.Second, begun: 2 * time.Second, wal: 1e6, times: []time.Duration{8 * time.Second}}
		if name == sexton || name == undoOn {
			one = measured{took: 2 * time.Second, begun: time.Second, wal: 2e6, times: []time.Duration{time.Second, 2 * time.Second}}
		}
		if name == undoOff || name == undoOn {
			one.restored = one.took
		}
		variants = append(variants, summary(name, 100, []measured{one}))
	}
	quiet := disturbance{name: undisturbed, ms: jobrun.Percentiles{P50: 1}}
	found := comparison{set: "few", targets: 10, rows: 100, variants: variants, foreground: []disturbance{quiet}}
	for _, test := range []struct {
		contest contest
		want    []string
	}{
		{drains("turbo"), []string{
			"set | variant | seconds | rows/s | parents ms | WAL MB | statements | p50 ms | p99 ms | max ms",
			"few | one statement | 4.00 | 25 | 2000.0 | 1.0 | 1 | 8000.0 | 8000.0 | 8000.0", "few | sexton | 2.00 | 50 | 1000.0 | 2.0 | 2 | 1000.0 | 2000.0 | 2000.0",
			"set | sexton / one statement | / native | / in list | parents / native | WAL / native | parents | rows",
			"few | 2.00 | 2.00 | 2.00 | 0.5000 | 2.00 | 10 | 100",
		}},
		{undos(), []string{"few | on | 2.00 | 50 | 2.0 | 55 | 2 | 1000.0 | 2000.0 | 2000.0", "few | 2.00 | 2.00 | 2.00 | 10 | 100"}},
		{moves(20), []string{"set | sexton / one statement | / original | WAL / one statement | users | rows", "few | 2.00 | 2.00 | 2.00 | 10 | 100"}},
		{destructions(), []string{
			"set | seconds / native | longest statement / native | WAL / native | projects | rows", "few | 0.50 | 0.2500 | 2.00 | 10 | 100",
		}},
	} {
		printed := lines(t, test.contest.report(&Cluster{}, Options{Foreground: true, Duty: "70"}, found))
		require.Subset(t, printed, append(test.want,
			"few | undisturbed | 1.00 | 0.00 | 0.00 | 0.00 | 0.00 | 0.00 | 0 | 0 | 0 | 0.00 | 0.0 | 0.0"), test.contest.name)
	}
}

func TestFiguresOfABacklog(t *testing.T) {
	t.Parallel()
	run := func(took time.Duration, peak int64) backlogRun {
		return backlogRun{took: took, passes: int(peak), peak: new(peak << 20)}
	}
	size := sumUp(1000, true, []backlogRun{run(time.Second, 3), run(4*time.Second, 5), run(2*time.Second, 4)})
	r := &Report{}
	r.show(size.figures(500, 1000))
	require.Equal(t, "1000 | yes | 2000.00 | 4.00 | 0.50 | 0.00 | 0.00 | 0.00 | 0.00 | 0.00 | 0.00 | 5.0 | 5", lines(t, r)[1])
}
