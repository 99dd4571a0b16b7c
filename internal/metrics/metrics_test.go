package metrics_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/jobrun"
	"sexton/internal/metrics"
)

const kind = "loose_foreign_keys_cleanup"

func newMetrics(t *testing.T, read metrics.Reader) *metrics.Metrics {
	m, err := metrics.New(metrics.Options{
		Kinds: []string{kind}, Databases: []string{"main"}, CleanUp: kind, DiffSkips: []string{"gone", "inconsistent"},
		Version: "v1", Go: "go1", River: "v0",
		Read: read, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return m
}

func noSamples(context.Context) []metrics.Sample { return nil }

// sampleAllGauges returns a sample of each gauge.
func sampleAllGauges(context.Context) []metrics.Sample {
	var samples []metrics.Sample
	for _, metric := range metrics.Table() {
		if metric.Type == metrics.Gauge && metric.Name != "sexton_build_info" {
			samples = append(samples, metrics.Sample{
				Metric: metric.Name, Value: 1,
				Labels: slices.Repeat([]string{"x"}, len(metric.Labels)),
			})
		}
	}
	return samples
}

// scrape returns the response to a scrape.
func scrape(t *testing.T, m *metrics.Metrics) string {
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, recorder.Code)
	text, err := io.ReadAll(recorder.Body)
	require.NoError(t, err)
	return string(text)
}

func TestServedMetricsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, sampleAllGauges)
	ended := jobrun.Ended{
		Kind: kind, Database: "main", Outcome: jobrun.Done, Counts: jobrun.Counts{},
		Faults: []batch.FaultCounts{{Table: "children", SQLState: "55P03", Count: 1}},
	}
	for _, metric := range metrics.Table() {
		label := ""
		if slices.Contains(metric.Labels, "table") {
			label = "issues.author_id"
		}
		if slices.Contains(metric.Labels, "reason") {
			label = "inconsistent"
		}
		if metric.Type == metrics.Counter && !slices.Contains(metric.Labels, "kind") &&
			!strings.Contains(metric.Name, "_sli_") {
			ended.Counts[metric.Name] = map[string]int64{label: 1}
		}
	}
	m.RunEnded(ended)

	families, err := m.Gatherer().Gather()
	require.NoError(t, err)
	served := map[string]string{}
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), "sexton_") {
			served[family.GetName()] = strings.ToLower(family.GetType().String()) + ": " + family.GetHelp()
		}
	}
	listed := map[string]string{}
	for _, metric := range metrics.Table() {
		listed[metric.Name] = string(metric.Type) + ": " + metric.Help
	}
	require.Equal(t, listed, served)

	problems, err := testutil.GatherAndLint(m.Gatherer())
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Contains(t, scrape(t, m), "\ngo_goroutines ")
	require.Contains(t, scrape(t, m), "\nprocess_start_time_seconds ")
}

func TestRunsAreCounted(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, noSamples)
	text := scrape(t, m)
	require.Contains(t, text, `sexton_runs_total{database="main",kind="loose_foreign_keys_cleanup",outcome="done"} 0`,
		"before the first run")
	require.Contains(t, text, `sexton_sli_loose_foreign_key_clean_ups_error_total{database="main"} 0`)

	require.Contains(t, text, `sexton_external_diffs_skipped_total{database="main",reason="inconsistent"} 0`)

	end := func(ended jobrun.Ended) {
		ended.Kind, ended.Database = kind, "main"
		m.RunEnded(ended)
	}
	end(jobrun.Ended{Outcome: jobrun.Done, Duration: 3 * time.Second, Counts: jobrun.Counts{
		metrics.Deletions: {"issues": 5}, metrics.ProcessedRecords: {"projects": 2}, metrics.LateChildren: {"": 1},
		metrics.DiffsSkipped: {"inconsistent": 2},
	}})
	end(jobrun.Ended{
		Outcome: jobrun.OverLimit, Duration: 30 * time.Second, Counts: jobrun.Counts{metrics.Deletions: {"issues": 7}},
		Faults:  []batch.FaultCounts{{Table: "issues", SQLState: "55P03", Count: 4}},
		Latency: jobrun.Histogram{"0.005": 3, "+Inf": 1},
	})
	// A held run does not count as a success for the apdex.
	end(jobrun.Ended{
		Outcome: jobrun.Done, Faults: []batch.FaultCounts{{Table: "notes", SQLState: "57014", Count: 1}},
		Held: "notes: locked",
	})
	end(jobrun.Ended{Outcome: jobrun.Skipped, LeaseTaken: true, Duration: time.Millisecond})
	end(jobrun.Ended{Outcome: jobrun.Skipped, Err: context.Canceled})
	end(jobrun.Ended{
		Outcome: jobrun.Failed, Duration: time.Second,
		Err: errors.Join(errors.New("run"), &pgconn.PgError{Code: "42501"}),
	})
	end(jobrun.Ended{Outcome: jobrun.Failed, Duration: time.Second, Err: errors.New("no connection")})
	m.RunEnded(jobrun.Ended{Kind: "another", Database: "main", Outcome: jobrun.Failed})

	text = scrape(t, m)
	for _, want := range []string{
		`sexton_external_diffs_skipped_total{database="main",reason="gone"} 0`,
		`sexton_external_diffs_skipped_total{database="main",reason="inconsistent"} 2`,
		`sexton_runs_total{database="main",kind="loose_foreign_keys_cleanup",outcome="done"} 2`,
		`sexton_runs_total{database="main",kind="loose_foreign_keys_cleanup",outcome="over_limit"} 1`,
		`sexton_runs_total{database="main",kind="loose_foreign_keys_cleanup",outcome="skipped"} 2`,
		`sexton_runs_total{database="main",kind="loose_foreign_keys_cleanup",outcome="failed"} 2`,
		`sexton_lease_skips_total{database="main",kind="loose_foreign_keys_cleanup"} 1`,
		`sexton_run_duration_seconds_count{database="main",kind="loose_foreign_keys_cleanup"} 5`,
		`sexton_run_duration_seconds_sum{database="main",kind="loose_foreign_keys_cleanup"} 35`,
		`sexton_errors_total{database="main",kind="loose_foreign_keys_cleanup",sqlstate="55P03",table="issues"} 4`,
		`sexton_clean_up_latency_seconds_bucket{database="main",kind="loose_foreign_keys_cleanup",le="0.004"} 0`,
		`sexton_clean_up_latency_seconds_bucket{database="main",kind="loose_foreign_keys_cleanup",le="0.005"} 3`,
		`sexton_clean_up_latency_seconds_bucket{database="main",kind="loose_foreign_keys_cleanup",le="604800"} 3`,
		`sexton_clean_up_latency_seconds_count{database="main",kind="loose_foreign_keys_cleanup"} 4`,
		`sexton_errors_total{database="main",kind="loose_foreign_keys_cleanup",sqlstate="42501",table=""} 1`,
		`sexton_errors_total{database="main",kind="loose_foreign_keys_cleanup",sqlstate="",table=""} 1`,
		`sexton_loose_foreign_key_deletions_total{database="main",table="issues"} 12`,
		`sexton_loose_foreign_key_processed_deleted_records_total{database="main",table="projects"} 2`,
		`sexton_loose_foreign_key_late_children_total{database="main"} 1`,
		`sexton_sli_loose_foreign_key_clean_ups_apdex_total{database="main"} 3`,
		`sexton_sli_loose_foreign_key_clean_ups_apdex_success_total{database="main"} 1`,
		`sexton_sli_loose_foreign_key_clean_ups_total{database="main"} 5`,
		`sexton_sli_loose_foreign_key_clean_ups_error_total{database="main"} 2`,
	} {
		require.Contains(t, text, "\n"+want+"\n")
	}
}

// Invalid samples and counts are omitted. The other metrics are still served.
func TestInvalidSamplesAndCountsAreOmitted(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, func(context.Context) []metrics.Sample {
		return []metrics.Sample{
			{Metric: metrics.Up, Value: 1, Labels: []string{"main"}},
			{Metric: metrics.Up, Value: 1, Labels: []string{"too", "many"}},
			{Metric: "sexton_unheard_of", Value: 1},
			{Metric: metrics.ReplicaLag, Value: 1, Labels: []string{"main", "twin"}},
			{Metric: metrics.ReplicaLag, Value: 12, Labels: []string{"main", "twin"}},
			{Metric: metrics.ReplicaLag, Value: 2, Labels: []string{"main", "twin"}},
		}
	})
	m.RunEnded(jobrun.Ended{Kind: kind, Database: "main", Outcome: jobrun.Done, Counts: jobrun.Counts{
		"sexton_unheard_of": {"": 1}, metrics.LateChildren: {"no such label": 1}, metrics.Deletions: {"issues": 1},
	}})
	text := scrape(t, m)
	require.Contains(t, text, "\nsexton_up{database=\"main\"} 1\n")
	require.NotContains(t, text, "too")
	require.Contains(t, text, "\nsexton_replica_lag_seconds{database=\"main\",replica=\"twin\"} 12\n")
	require.Contains(t, text, "\nsexton_loose_foreign_key_deletions_total{database=\"main\",table=\"issues\"} 1\n")
}

func TestConsecutiveScrapesReadTheGaugesOnce(t *testing.T) {
	t.Parallel()
	reads := 0
	m := newMetrics(t, func(ctx context.Context) []metrics.Sample {
		_, bounded := ctx.Deadline()
		require.True(t, bounded, "the context of a reading has a deadline")
		reads++
		return nil
	})
	scrape(t, m)
	scrape(t, m)
	require.Equal(t, 1, reads)
}
