package render_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/render"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		4230 * time.Microsecond: "4.2 ms", 12900 * time.Microsecond: "12 ms", 1540 * time.Millisecond: "1.5 s",
		70 * time.Second: "1m10s",
	} {
		require.Equal(t, want, render.Duration(d))
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for span, want := range map[time.Duration]string{
		-time.Hour: "0s", 1499 * time.Millisecond: "1s", 90 * time.Second: "1m30s", 47 * time.Hour: "47h0m0s",
		48 * time.Hour: "2d0h", 65*24*time.Hour + 3*time.Hour + 59*time.Minute: "65d3h",
	} {
		require.Equal(t, want, render.Span(span))
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	render.Table(&out, "\nJOB\tNEXT\tERROR", []string{"cleanup", "a\tb"}, func(name string) []any {
		return []any{name, (*time.Time)(nil), "locked;\nby a\fsession"}
	})
	render.Table(&out, "", []int{10, 7}, func(n int) []any { return []any{n, ""} })
	require.Equal(t, `
JOB      NEXT  ERROR
cleanup  -     locked; by a session
a b      -     locked; by a session
10  -
7   -
`, out.String())
}
