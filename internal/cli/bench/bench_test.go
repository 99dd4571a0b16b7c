package bench_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

// runBenchmark runs a benchmark on the tests' server. Tests do not check the measured
// values, because they depend on the machine and on other tests.
func runBenchmark(t *testing.T, args ...string) clitest.Result {
	r := clitest.Run(nil, append(append([]string{"bench"}, args...), "--database-url", pgtest.New(t).URL)...)
	require.Zero(t, r.Code, "%v: %s", args, r.Stderr)
	return r
}

// decoded returns the JSON document that a benchmark has printed.
func decoded(t *testing.T, r clitest.Result) (document map[string]any) {
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &document), r.Stdout)
	require.Equal(t, []string{"fsync", "synchronous_commit", "version"}, keys(document["server"]))
	return document
}

func benchmark(t *testing.T, args ...string) map[string]any {
	document := decoded(t, runBenchmark(t, append(args, "--json")...))
	require.Equal(t, args[0], document["benchmark"])
	return document
}

func keys(object any) []string { return slices.Sorted(maps.Keys(object.(map[string]any))) }

// cells returns the given fields of each object of a list.
func cells(list any, fields ...string) [][]any {
	var out [][]any
	for _, cell := range list.([]any) {
		var values []any
		for _, field := range fields {
			values = append(values, cell.(map[string]any)[field])
		}
		out = append(out, values)
	}
	return out
}

func TestBenchLatency(t *testing.T) {
	t.Parallel()
	document := benchmark(t, "latency", "--events", "3")
	require.Equal(t, []string{
		"benchmark", "children", "commit_ms", "delete_ms", "events", "latency_ms", "look_every_ms",
		"minute_cron_computed_p50_ms", "minute_cron_computed_p99_ms", "native_cascade_ms",
		"native_cascade_wal_bytes_per_event",
		"ratio_delete_to_native_cascade", "ratio_minute_cron_to_p50", "ratio_p50_to_native_cascade",
		"ratio_wal_to_native_cascade", "server", "wal_bytes_per_event",
	}, keys(document))
	require.EqualValues(t, 3, document["events"])
	require.Equal(t, []string{"max", "p50", "p90", "p99"}, keys(document["latency_ms"]))
	require.Positive(t, document["wal_bytes_per_event"])
}

func TestBenchNotify(t *testing.T) {
	t.Parallel()
	document := benchmark(t, "notify", "--seconds", "0.01", "--rounds", "1")
	require.Equal(t, []string{"benchmark", "commits", "rounds", "seconds_per_turn", "server"}, keys(document))
	var want [][]any
	for _, clients := range []float64{1, 8, 32} {
		for _, variant := range []string{
			"no_trigger", "tombstones_only", "notify_each_time", "sexton_awake_lock_only",
			"sexton_with_worker",
		} {
			want = append(want, []any{clients, variant})
		}
	}
	require.Equal(t, want, cells(document["commits"], "clients", "variant"))
	for _, cell := range document["commits"].([]any) {
		require.Equal(t, []string{
			"clients", "commits_per_second", "notifications", "ratio_quartiles", "ratio_to_tombstones_only", "variant",
		}, keys(cell))
		variant, notifications := cell.(map[string]any)["variant"], cell.(map[string]any)["notifications"]
		if variant == "no_trigger" || variant == "tombstones_only" {
			require.Zero(t, notifications, "%v sends notifications", variant)
		}
	}
}

func TestBenchIdle(t *testing.T) {
	t.Parallel()
	document := benchmark(t, "idle", "--seconds", "0.1")
	require.Equal(t, []string{
		"benchmark", "connections", "rss_anonymous_bytes", "rss_before_worker_bytes", "rss_bytes", "seconds", "server",
		"transactions_per_minute",
	}, keys(document))
	require.Positive(t, document["connections"])
}

func TestBenchWithWrongArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"latency", "--events", "0"},
		{"notify", "--rounds", "-1"},
		{"notify", "--seconds", "0"},
		{"idle", "--seconds", "-1"},
	} {
		r := clitest.Run(nil, append([]string{"bench"}, args...)...)
		require.Equal(t, 2, r.Code, args)
		require.Contains(t, r.Stderr, args[1]+" must be more than 0", args)
	}
	r := clitest.Run(nil, "bench", "idle", "--database-url", "postgres:///gone?host=/nowhere")
	require.Equal(t, 4, r.Code, r.Stderr)
}

func TestMain(m *testing.M) { clitest.Main(m) }
