package demo

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/latency"
)

// busy is a state in which every part has something to show.
func busy() State {
	return State{
		Elapsed: 12600 * time.Millisecond, ParentsDeleted: 1234, ParentsPlanned: 56789,
		Backlog: 1002, Oldest: 2345 * time.Millisecond,
		Cleaned: Totals{
			Runs: 3, Tombstones: 4000,
			Deleted: map[string]int64{"notes": 1200000, "todos": 34, "labels": 34, "events": 35, "uploads": 1},
			Updated: map[string]int64{"p_ci_builds": 70, "reviews": 8},
		},
		RowsPerSecond: 34567.8,
		Latency:       latency.Percentiles{P50: 12.4, P90: 20, P99: 1234.5, Max: 2000},
		Activity:      "loose_foreign_keys_cleanup works (run 3 for 0.2 s)",
	}
}

func TestLinesShow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state State
		want  string
	}{
		"busy": {
			busy(),
			" 13 s | deleted 1,234 of 56,789 parents | tombstones: backlog 1,002 (oldest 2.3 s), 5,002 arrived, 4,000 paid off | " +
				"children: 1,200,104 deleted, 78 nullified or updated, 34,567 rows/s | commit to clean: p50 12 ms, p99 1234 ms | " +
				"loose_foreign_keys_cleanup works (run 3 for 0.2 s)\n",
		},
		"without a backlog": {
			State{
				Elapsed: 100 * time.Second, ParentsDeleted: 10, ParentsPlanned: 10, ApplicationDone: true,
				Cleaned: Totals{Tombstones: 10, Deleted: map[string]int64{"notes": 9}},
				Latency: latency.Percentiles{P50: 2, P99: 3.5, Max: 4}, Activity: "sleeps",
			},
			"100 s | deleted 10 of 10 parents, no more to come | tombstones: backlog 0, 10 arrived, 10 paid off | " +
				"children: 9 deleted, 0 nullified or updated, 0 rows/s | commit to clean: p50 2 ms, p99 4 ms | sleeps\n",
		},
		"before the first latency": {
			State{ParentsPlanned: 1000, Backlog: 1, Activity: "wakes up"},
			"  0 s | deleted 0 of 1,000 parents | tombstones: backlog 1 (oldest 0.0 s), 1 arrived, 0 paid off | " +
				"children: 0 deleted, 0 nullified or updated, 0 rows/s | commit to clean: - | wakes up\n",
		},
	} {
		var out bytes.Buffer
		l := NewLines(&out)
		l.Show(test.state)
		l.Close()
		require.Equal(t, test.want, out.String(), name)
	}
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
		require.Equal(t, want, grouped(n))
	}
}

func TestTablesThatLostMost(t *testing.T) {
	t.Parallel()
	require.Equal(t, "notes 1,200,000  events 35  labels 34  todos 34", busy().tables(4), "equals by name")
	require.Equal(t, "notes 1,200,000", busy().tables(1))
	require.Equal(t, 5, strings.Count(busy().tables(100), "  ")+1)
	require.Empty(t, State{}.tables(4))
	require.Empty(t, busy().tables(0))
}

func TestSummaryText(t *testing.T) {
	t.Parallel()
	summary := Summary{
		RowsLoaded: 200000, ParentsDeleted: 1234, ChildrenDeleted: 56789, ChildrenNullified: 12, ChildrenUpdated: 3,
		P50LatencyMS: 12.345, P99LatencyMS: 99.95, Seconds: 25.04,
	}
	var out bytes.Buffer
	require.NoError(t, summary.Text(&out))
	const want = "\n1,234 parents deleted, 56,789 children deleted, 12 nullified, 3 updated in 25.0 s\nfrom commit to clean: p50 12.3 ms, p99 100.0 ms\n"
	require.Equal(t, want, out.String())

	out.Reset()
	summary.OrphansLeft = new(int64)
	require.NoError(t, summary.Text(&out))
	require.Equal(t, want+"orphans left: 0\n", out.String())
}
