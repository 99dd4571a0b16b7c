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
	for _, kind := range []metrics.Type{metrics.Counter, metrics.Histogram, metrics.Gauge} {
		fmt.Fprintf(&want, "%ss:\n\n", strings.ToUpper(string(kind[:1]))+string(kind[1:]))
		for _, metric := range metrics.Table() {
			if metric.Type != kind {
				continue
			}
			name := metric.Name
			if len(metric.Labels) > 0 {
				name += "{" + strings.Join(metric.Labels, ",") + "}"
			}
			fmt.Fprintf(&want, "- `%s`: %s\n", name, metric.Help)
		}
		want.WriteString("\n")
	}
	_, rest, found := strings.Cut(string(text), "## The metrics\n\n")
	require.True(t, found, "docs/metrics.md has a section for the lists")
	lists, _, _ := strings.Cut(rest, "The Go runtime")
	require.Equal(t, want.String(), lists, "the lists of docs/metrics.md and the table in the code")
}
