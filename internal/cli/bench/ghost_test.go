package bench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/bench"
	"sexton/internal/cli/clitest"
)

func TestBenchGhost(t *testing.T) {
	t.Parallel()
	document := benchmark(t, "ghost", "--scale", "0.002", "--rounds", "1", "--target", "0s")
	require.Equal(t, []string{"benchmark", "foreground_duty", "rounds", "scale", "server", "sets", "target_ms"}, keys(document))
	require.Nil(t, document["foreground_duty"])
	require.Zero(t, document["target_ms"])
	require.Equal(t, [][]any{{"big", 1.0, 2_000.0, nil}, {"many", 10.0, 10_000.0, nil}, {"duplicates", 1.0, 800.0, nil}}, cells(document["sets"], "set", "users", "rows", "foreground"))
	for _, set := range document["sets"].([]any) {
		require.Equal(t, []string{
			"contenders", "foreground", "ratio_to_one_statement", "ratio_to_original", "ratio_wal_to_one_statement", "rows", "set", "users",
		}, keys(set))
		contenders := set.(map[string]any)["contenders"]
		require.Equal(t, [][]any{{"one_statement"}, {"original"}, {"sexton"}}, cells(contenders, "contender"))
		for _, contender := range contenders.([]any) {
			require.Equal(t, []string{"contender", "rows_per_second", "seconds", "statement_ms", "statements", "wal_bytes"}, keys(contender))
			for _, field := range []string{"rows_per_second", "statements", "wal_bytes"} {
				require.Positive(t, contender.(map[string]any)[field], "%s of %v", field, contender)
			}
		}
	}
	big := document["sets"].([]any)[0].(map[string]any)["contenders"]
	require.Equal(t, [][]any{{1.0}, {41.0}, {40.0}}, cells(big, "statements"), "50 rows each; the original's last one finds nothing")
}

func TestBenchGhostWithWrongArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--set", "few"}, "--set must be one of big, many, duplicates, all"},
		{[]string{"--scale", "0"}, "--scale must be more than 0"},
		{[]string{"--duty", "101"}, "--duty must be auto, or a percentage from 1 to 100"},
		{[]string{"--target", "2s"}, "--target must be 0s, or between 1ms and 1s"},
	} {
		r := clitest.Run(nil, append([]string{"bench", "ghost"}, test.args...)...)
		require.Equal(t, 2, r.Code, test.args)
		require.Contains(t, r.Stderr, test.want, test.args)
	}
	require.Equal(t, []string{"big", "many", "duplicates"}, bench.GhostSets())
}
