//go:build long

package bench_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBenchScale(t *testing.T) {
	t.Parallel()
	document := benchmark(t, "scale", "--max", "10000", "--old-snapshot")
	require.Equal(t, []string{"benchmark", "pace", "server", "sizes"}, keys(document))
	sizes := document["sizes"].([]any)
	require.Equal(t, [][]any{{10_000.0, false, 3.0}, {10_000.0, true, 3.0}}, cells(sizes, "tombstones", "old_snapshot", "rounds"))
	for _, size := range sizes {
		require.Equal(t, []string{
			"after_queue_statement_ms", "old_snapshot", "passes", "peak_rss_bytes", "queue_statement_ms", "ratio_speed_to_no_snapshot", "ratio_to_smallest", "rounds",
			"seconds", "statement_ms", "tombstones", "us_per_row",
		}, keys(size))
	}
	require.Nil(t, sizes[0].(map[string]any)["ratio_speed_to_no_snapshot"])
	require.Positive(t, sizes[1].(map[string]any)["ratio_speed_to_no_snapshot"])
}

func TestBenchGhostBesideForeground(t *testing.T) {
	t.Parallel()
	r := measured(t, "ghost", "--set", "many", "--scale", "0.002", "--rounds", "1", "--foreground")
	for _, part := range []string{"one statement", "original", "undisturbed", "rows/s beside it", "steered to 20 ms", "Sexton's duty auto", "clients busy"} {
		require.Contains(t, r.Stdout, part)
	}
	require.Contains(t, r.Stderr, "many: foreground load, round 1 of 1, sexton\n")
}

func TestBenchDiffsInAFolderOfItsOwn(t *testing.T) {
	t.Parallel()
	r := measured(t, "diffs", "--scale", "0.004", "--rounds", "1", "--big", "1")
	for _, part := range []string{"plain uploads", "MB/s", "one diff of 1 MiB", "/sexton-bench-diffs-"} {
		require.Contains(t, r.Stdout, part)
	}
	require.Contains(t, r.Stderr, "small: round 1 of 1, sexton\n")
}

// benchmarkRow is a line of the tables of figures in docs/comparison.md.
type benchmarkRow struct{ commands, fields []string }

func benchmarkRows(t *testing.T) []benchmarkRow {
	text, err := os.ReadFile("../../../docs/comparison.md")
	require.NoError(t, err)
	code := regexp.MustCompile("`([^`]+)`")
	var rows []benchmarkRow
	for _, table := range strings.Split(string(text), "\n| what | command | in `--json` | figure |\n")[1:] {
		table, _, _ = strings.Cut(table, "\n\n")
		for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
			cells := strings.Split(line, "|")
			require.Len(t, cells, 6, line)
			var row benchmarkRow
			for _, match := range code.FindAllStringSubmatch(cells[2], -1) {
				command, found := strings.CutPrefix(match[1], "sexton bench ")
				require.True(t, found, line)
				row.commands = append(row.commands, command)
			}
			if strings.TrimSpace(cells[2]) == "the same" {
				row.commands = rows[len(rows)-1].commands
			}
			for _, match := range code.FindAllStringSubmatch(cells[3], -1) {
				row.fields = append(row.fields, match[1])
			}
			require.NotEmpty(t, row.commands, line)
			require.NotEmpty(t, row.fields, line)
			rows = append(rows, row)
		}
	}
	require.Greater(t, len(rows), 10)
	return rows
}

// small are the flags that make a benchmark a matter of a second. The last of two flags counts.
func small(t *testing.T, name string) []string {
	return map[string][]string{
		"latency": {"--events", "2"},
		"notify":  {"--seconds", "0.01", "--rounds", "1"},
		"idle":    {"--seconds", "1"},
		"trigger": {"--rows", "100"},
		"drain":   {"--scale", "0.001", "--rounds", "1"},
		"scale":   {"--max", "10000"},
		"undo":    {"--scale", "0.001", "--rounds", "1"},
		"ghost":   {"--scale", "0.001", "--rounds", "1"},
		"group":   {"--scale", "0.01", "--rounds", "1"},
		"diffs":   {"--scale", "0.004", "--rounds", "1", "--big", "1", "--bucket", "file://" + t.TempDir()},
	}[name]
}

// Every command that a figure comes from runs, and its document has the figure.
func TestComparisonsAreMeasured(t *testing.T) {
	t.Parallel()
	fields := map[string][]string{}
	for _, row := range benchmarkRows(t) {
		for _, command := range row.commands {
			fields[command] = append(fields[command], row.fields...)
		}
	}
	for command, wanted := range fields {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(command)
			limits := small(t, args[0])
			require.NotEmpty(t, limits, "a small size for bench %s", args[0])
			present := fieldsOf(benchmark(t, append(args, limits...)...))
			for _, field := range wanted {
				require.Contains(t, present, field, "bench %s --json has no field of docs/comparison.md", command)
			}
		})
	}
}

// fieldsOf are the names of all fields of a document, at any depth, sorted.
func fieldsOf(document any) []string {
	var names []string
	switch value := document.(type) {
	case map[string]any:
		for name, inner := range value {
			names = append(append(names, name), fieldsOf(inner)...)
		}
	case []any:
		for _, inner := range value {
			names = append(names, fieldsOf(inner)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
