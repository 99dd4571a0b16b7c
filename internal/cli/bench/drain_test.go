package bench_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/bench"
	"sexton/internal/cli/clitest"
)

func TestBenchDrain(t *testing.T) {
	t.Parallel()
	document := benchmark(t, "drain", "--scale", "0.001", "--rounds", "1", "--pace", "turbo")
	require.Equal(t, []string{"benchmark", "foreground_duty", "pace", "rounds", "scale", "server", "sets"}, keys(document))
	require.Nil(t, document["foreground_duty"])
	require.Equal(t, "turbo", document["pace"])
	require.Equal(t, [][]any{
		{"wide", 10.0, 1_000.0, nil},
		{"fanout", 10.0, 10_000.0, nil},
		{"skew", 11.0, 1_100.0, nil},
		{"nullify", 10.0, 1_000.0, nil},
		{"single", 100.0, 100.0, nil},
		{"slow", 10.0, 30.0, nil},
	}, cells(document["sets"], "set", "parents", "rows", "foreground"))
	for _, set := range document["sets"].([]any) {
		require.Equal(t, []string{
			"contenders", "foreground", "parents", "ratio_parent_delete_to_native", "ratio_to_in_list", "ratio_to_native",
			"ratio_to_one_statement", "ratio_wal_to_native", "rows", "set",
		}, keys(set))
		contenders := set.(map[string]any)["contenders"]
		require.Equal(t, [][]any{{"one_statement"}, {"native"}, {"in_list"}, {"sexton"}}, cells(contenders, "contender"))
		for _, contender := range contenders.([]any) {
			require.Equal(t, []string{
				"contender", "parent_delete_ms", "rows_per_second", "seconds", "statement_ms", "statements", "wal_bytes",
			}, keys(contender))
			require.Equal(t, []string{"max", "p50", "p90", "p99"}, keys(contender.(map[string]any)["statement_ms"]))
			for _, field := range []string{"parent_delete_ms", "rows_per_second", "statements", "wal_bytes"} {
				require.Positive(t, contender.(map[string]any)[field], "%s of %v", field, contender)
			}
		}
	}
}

// The tables are those of the document.
func TestBenchDrainBesideForeground(t *testing.T) {
	t.Parallel()
	r := measured(t, "drain", "--set", "nullify", "--scale", "0.001", "--rounds", "2", "--foreground", "--duty", "70", "--json")
	document := decoded(t, r)
	require.EqualValues(t, 70, document["foreground_duty"])
	sets := document["sets"].([]any)
	require.Len(t, sets, 1)
	foreground := sets[0].(map[string]any)["foreground"]
	require.Equal(t, [][]any{{"undisturbed"}, {"native"}, {"sexton"}}, cells(foreground, "contender"))
	for _, cell := range foreground.([]any) {
		require.Equal(t, []string{
			"clients_busy_percent", "contender", "ms", "ratio_p50_to_undisturbed", "ratio_p99_to_undisturbed", "ratio_rows_per_second_to_alone", "rows_per_second", "statement_ms", "transactions",
		}, keys(cell))
	}
	// They take turns in who begins.
	require.Contains(t, r.Stderr, "nullify: round 1 of 2, one_statement\n")
	require.Contains(t, r.Stderr, "nullify: round 2 of 2, native\nnullify: round 2 of 2, in_list\nnullify: round 2 of 2, sexton\nnullify: round 2 of 2, one_statement\n")
	var report bench.DrainReport
	printed := text(t, r, &report)
	for _, part := range []string{"one statement", "in list", "/ native", "undisturbed", "rows/s beside it"} {
		require.Contains(t, printed, part)
	}
}

func TestBenchDrainWithWrongArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"drain", "--set", "deep"}, "--set must be one of wide, fanout, skew, nullify, single, slow, all"},
		{[]string{"drain", "--scale", "0"}, "--scale must be more than 0"},
		{[]string{"drain", "--duty", "101"}, "--duty must be auto, or a percentage from 1 to 100"},
		{[]string{"drain", "--rounds", "-1"}, "--rounds must be more than 0"},
		{[]string{"drain", "--pace", "furious"}, "--pace must be one of normal"},
		{[]string{"scale", "--max", "9999"}, "--max must be between 10000 and 10000000"},
		{[]string{"scale", "--max", "10000001"}, "--max must be between 10000 and 10000000"},
	} {
		r := clitest.Run(nil, append([]string{"bench"}, test.args...)...)
		require.Equal(t, 2, r.Code, test.args)
		require.Contains(t, r.Stderr, test.want, test.args)
	}
	require.Equal(t, []string{"wide", "fanout", "skew", "nullify", "single", "slow"}, bench.DrainSets())
}
