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

// benchmarkRow is a row of the tables with figures in docs/comparison.md.
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
	require.GreaterOrEqual(t, len(rows), 8)
	return rows
}

// small returns flags with which a benchmark takes about a second. They override earlier
// flags of the command.
func small(name string) []string {
	return map[string][]string{
		"latency": {"--events", "2"},
		"notify":  {"--seconds", "0.01", "--rounds", "1"},
		"idle":    {"--seconds", "1"},
		"drain":   {"--scale", "0.001", "--rounds", "1"},
	}[name]
}

// The commands in docs/comparison.md run, and their JSON documents have the fields of the
// figures.
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
			limits := small(args[0])
			require.NotEmpty(t, limits, "a small size for bench %s", args[0])
			present := fieldsOf(benchmark(t, append(args, limits...)...))
			for _, field := range wanted {
				require.Contains(t, present, field, "bench %s --json has no field of docs/comparison.md", command)
			}
		})
	}
}

// fieldsOf returns the sorted names of all fields of a JSON document, including nested
// objects.
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
