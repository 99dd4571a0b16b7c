package metrics_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/metrics"
)

func TestDocumentationHasTheTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	var want strings.Builder
	want.WriteString("| name | type | labels | what it shows |\n| --- | --- | --- | --- |\n")
	for _, metric := range metrics.Table() {
		labels := ""
		if len(metric.Labels) > 0 {
			labels = "`" + strings.Join(metric.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", metric.Name, metric.Type, labels, metric.Help)
	}
	_, rest, found := strings.Cut(string(text), "## The metrics\n\n")
	require.True(t, found, "docs/metrics.md has a section for the table")
	table, _, _ := strings.Cut(rest, "\n\n")
	require.Equal(t, want.String(), table+"\n", "the table of docs/metrics.md and the one in the code")
}
