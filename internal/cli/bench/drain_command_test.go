package bench_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/bench"
	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

func TestBenchDrain(t *testing.T) {
	t.Parallel()
	args, want := []string{"drain", "--scale", "0.001", "--rounds", "1"}, [][]any{
		{"wide", 10.0, 1_000.0},
		{"fanout", 10.0, 10_000.0},
		{"skew", 11.0, 1_100.0},
		{"nullify", 10.0, 1_000.0},
		{"slow", 20.0, 20.0},
		{"retention", 0.0, 1_000.0},
	}
	if !pgtest.Long {
		args, want = append(args, "--set", "retention"), want[5:]
	}
	document := benchmark(t, args...)
	require.Equal(t, []string{"benchmark", "connections", "rounds", "scale", "server", "sets"}, keys(document))
	require.Nil(t, document["connections"])
	require.Equal(t, want, cells(document["sets"], "set", "parents", "rows"))
	for _, set := range document["sets"].([]any) {
		set := set.(map[string]any)
		require.Equal(t, []string{
			"contenders", "parents", "ratio_parent_delete_to_native", "ratio_to_native", "ratio_to_one_connection",
			"ratio_to_one_statement", "ratio_wal_to_native", "rows", "set",
		}, keys(set))
		contenders := [][]any{{"one_statement", set["rows"]}, {"native", set["rows"]}, {"sexton", set["rows"]}}
		switch set["set"] {
		case bench.Slow:
			contenders = [][]any{{"sexton_1_connection", set["rows"]}, {"sexton", set["rows"]}}
		case bench.Retention:
			contenders = slices.Delete(contenders, 1, 2)
		}
		require.Equal(t, contenders, cells(set["contenders"], "contender", "rows"))
		for _, contender := range set["contenders"].([]any) {
			require.Equal(t, []string{
				"contender", "parent_delete_ms", "rows", "rows_per_second", "seconds",
				"wal_bytes",
			}, keys(contender))
			for _, field := range []string{"parent_delete_ms", "rows_per_second", "wal_bytes"} {
				require.Positive(t, contender.(map[string]any)[field], "%s of %v", field, contender)
			}
		}
	}
}

// In one second, one connection deletes only some of 200 rows that take 20 ms each.
func TestBenchDrainOfSlowRows(t *testing.T) {
	t.Parallel()
	document := benchmark(t, "drain", "--set", "slow", "--scale", "0.01", "--rounds", "2", "--connections", "8",
		"--seconds", "1")
	require.EqualValues(t, 8, document["connections"])
	set := document["sets"].([]any)[0].(map[string]any)
	require.Positive(t, set["ratio_to_one_connection"])
	require.Nil(t, set["ratio_to_native"])
	require.EqualValues(t, 200, set["rows"])
	contenders := cells(set["contenders"], "contender", "rows")
	require.Equal(t, "sexton_1_connection", contenders[0][0])
	require.Less(t, contenders[0][1], 200.0)
	require.Positive(t, contenders[0][1])
}

// The text output has a line per contender. Each round begins with a different contender.
func TestBenchDrainText(t *testing.T) {
	t.Parallel()
	r := runBenchmark(t, "drain", "--set", "nullify", "--scale", "0.001", "--rounds", "2")
	for _, line := range []string{
		`nullify +one statement( +[\d.]+){5}`, `nullify +native( +[\d.]+){5}`, `nullify +sexton( +[\d.]+){5}`,
		`nullify( +[\d.]+){2} +-( +[\d.]+){2} +10 +1000`, `median of 2 interleaved rounds, .*`,
	} {
		require.Regexp(t, `(?m)^`+line+`$`, r.Stdout)
	}
	require.Contains(t, r.Stderr, "nullify: round 1 of 2, one_statement\n")
	require.Contains(t, r.Stderr,
		"nullify: round 2 of 2, native\nnullify: round 2 of 2, sexton\nnullify: round 2 of 2, one_statement\n")
}

func TestBenchDrainWithWrongArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--set", "deep"}, "--set must be one of wide, fanout, skew, nullify, slow, retention, all"},
		{[]string{"--scale", "0"}, "--scale must be more than 0"},
		{[]string{"--rounds", "-1"}, "--rounds must be more than 0"},
		{[]string{"--connections", "0"}, "--connections must be more than 0"},
		{[]string{"--seconds", "0.5"}, "--seconds must be at least 1"},
	} {
		r := clitest.Run(nil, append([]string{"bench", "drain"}, test.args...)...)
		require.Equal(t, 2, r.Code, test.args)
		require.Contains(t, r.Stderr, test.want, test.args)
	}
	r := clitest.Run(nil, "bench", "drain", "--connections", "1000", "--database-url", pgtest.New(t).URL)
	require.NotZero(t, r.Code)
	require.Contains(t, r.Stderr, "SEXTON_LOOSE_FOREIGN_KEYS__CONNECTIONS")
	require.NotContains(t, r.Stderr, "inserting the rows")
}
