package bench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

func TestBenchGroup(t *testing.T) {
	t.Parallel()
	document := benchmark(t, "group", "--scale", "0.01", "--rounds", "1", "--foreground", "--duty", "70")
	require.Equal(t, []string{
		"benchmark", "contenders", "foreground", "foreground_duty", "projects", "ratio_longest_statement_to_native", "ratio_seconds_to_native",
		"ratio_wal_to_native", "rounds", "rows", "scale", "server",
	}, keys(document))
	require.EqualValues(t, 10, document["projects"])
	require.EqualValues(t, 1+10*(1+100*10), document["rows"])
	require.EqualValues(t, 70, document["foreground_duty"])
	require.Equal(t, [][]any{{"native", 1.0}}, cells(document["contenders"], "contender", "statements")[:1])
	for _, contender := range document["contenders"].([]any) {
		require.Equal(t, []string{"contender", "rows_per_second", "seconds", "statement_ms", "statements", "wal_bytes"}, keys(contender))
		require.Positive(t, contender.(map[string]any)["wal_bytes"])
		require.Positive(t, contender.(map[string]any)["statements"])
	}
	require.Equal(t, [][]any{{"undisturbed"}, {"native"}, {"sexton"}}, cells(document["foreground"], "contender"))

	r := clitest.Run(nil, "bench", "group", "--duty", "101")
	require.Equal(t, 2, r.Code)
	require.Contains(t, r.Stderr, "--duty must be auto, or a percentage from 1 to 100")
}
