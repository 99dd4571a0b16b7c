package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"sexton/internal/doctor"
	"sexton/internal/extdiff"
	"sexton/internal/metrics"
	"sexton/internal/pgtest"
	riverjobs "sexton/river_jobs"
)

type alert struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func readAlerts(t *testing.T) map[string]alert {
	t.Helper()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "deploy", "prometheus", "alerts.yml")))(t)
	var file struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	alerts := map[string]alert{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			require.NotContains(t, alerts, rule.Alert, "alert")
			alerts[rule.Alert] = rule
		}
	}
	require.NotEmpty(t, alerts)
	return alerts
}

// Metric names with what stands in braces behind them, and label matchers in those.
var (
	selectorPattern = regexp.MustCompile(`\b(sexton_[a-z_]+)(?:\{([^}]*)\})?`)
	matcherPattern  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	groupPattern    = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// labelValues are those that the program gives, by metric and label. Others come from the configuration.
func labelValues() map[string]map[string][]string {
	states := []string{"listening", "polling", "disconnected"}
	return map[string]map[string][]string{
		"sexton_runs_total":                   {"outcome": {"done", "over_limit", "skipped", "failed"}},
		"sexton_listener":                     {"state": states},
		"sexton_queue_jobs":                   {"state": {"available", "pending", "running", "retryable", "scheduled", "discarded"}},
		"sexton_waiting":                      {"reason": documentedReasons()},
		"sexton_external_diffs_skipped_total": {"reason": skipReasons()},
		"sexton_backlog_": {"deletion_table": {
			"loose_foreign_keys_deleted_records", "users_ghost_user_migrations", "import_placeholder_user_details",
			"groups", "group_deletion_schedules", "merge_request_diffs",
		}},
	}
}

// skipReasons are why a diff may stay where it is.
func skipReasons() (reasons []string) {
	for _, reason := range extdiff.Skips() {
		reasons = append(reasons, string(reason))
	}
	return reasons
}

// documentedReasons are the reasons to wait that docs/metrics.md explains.
func documentedReasons() []string {
	text, err := os.ReadFile(filepath.Join("..", "docs", "metrics.md"))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), "| reason |")
	table, _, _ := strings.Cut(rest, "\n\n")
	var reasons []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		reasons = append(reasons, row[1])
	}
	return reasons
}

// checkExpression says what an expression names that the program does not have.
func checkExpression(expr string) []string {
	var findings []string
	known := map[string]metrics.Metric{}
	for _, metric := range metrics.Table() {
		known[metric.Name] = metric
		if metric.Type == metrics.Histogram {
			bucket := metric
			bucket.Labels = append(slices.Clone(metric.Labels), "le")
			known[metric.Name+"_bucket"], known[metric.Name+"_sum"], known[metric.Name+"_count"] = bucket, metric, metric
		}
	}
	var labels []string
	for _, selector := range selectorPattern.FindAllStringSubmatch(expr, -1) {
		metric, there := known[selector[1]]
		if !there {
			findings = append(findings, "there is no metric "+selector[1])
			continue
		}
		labels = append(labels, metric.Labels...)
		for _, matcher := range matcherPattern.FindAllStringSubmatch(selector[2], -1) {
			findings = append(findings, checkMatcher(metric, matcher[1], matcher[2])...)
		}
	}
	for _, group := range groupPattern.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(group[1], ",") {
			if label = strings.TrimSpace(label); !slices.Contains(labels, label) && label != "le" {
				findings = append(findings, "no metric of the expression has the label "+label)
			}
		}
	}
	return findings
}

func checkMatcher(metric metrics.Metric, label, value string) []string {
	if !slices.Contains(metric.Labels, label) {
		return []string{fmt.Sprintf("metric %s has no label %s", metric.Name, label)}
	}
	if strings.HasPrefix(value, "$") {
		return nil // A dashboard's variable.
	}
	var findings []string
	for prefix, byLabel := range labelValues() {
		for one := range strings.SplitSeq(value, "|") {
			if strings.HasPrefix(metric.Name, prefix) && byLabel[label] != nil && !slices.Contains(byLabel[label], one) {
				findings = append(findings, fmt.Sprintf("label %s of metric %s is never %q", label, metric.Name, one))
			}
		}
	}
	return findings
}

func TestAlertsNameWhatThereIs(t *testing.T) {
	t.Parallel()
	guide := pgtest.Must(os.ReadFile(filepath.Join("..", "docs", "operations.md")))(t)
	rules := pgtest.Must(os.ReadFile(filepath.Join("..", "deploy", "prometheus", "alerts_test.yml")))(t)
	alerts := readAlerts(t)
	for name, alert := range alerts {
		require.Empty(t, checkExpression(alert.Expr), name)
		require.Contains(t, []string{"critical", "warning", "info"}, alert.Labels["severity"], name)
		require.NotEmpty(t, alert.Annotations["summary"], name)
		require.NotEmpty(t, alert.Annotations["description"], name)
		require.Equal(t, "docs/operations.md#"+strings.ToLower(name), alert.Annotations["runbook_url"], name)
		require.Contains(t, string(guide), "\n### "+name+"\n", "a section of docs/operations.md")
		require.Contains(t, string(rules), "\n        alertname: "+name+"\n", "a test of the alert")
	}
	for _, section := range regexp.MustCompile(`(?m)^### (Sexton\w+)$`).FindAllStringSubmatch(string(guide), -1) {
		require.Contains(t, alerts, section[1], "sections of docs/operations.md")
	}
}

// Where the program has a limit of its own, the alert has the same.
func TestAlertsHaveTheProgramsLimits(t *testing.T) {
	t.Parallel()
	alerts := readAlerts(t)
	require.True(t, strings.HasSuffix(alerts["SextonNotifyQueueFills"].Expr, fmt.Sprintf(" > %v", doctor.QueueWarning)), "sexton doctor warns from the same usage on")
	require.True(t, strings.HasSuffix(alerts["SextonGhostUsersBacklog"].Expr, fmt.Sprintf(" > %d", riverjobs.GhostBacklogAlert)), "runs warn from as many on")
	// Runs warn of these themselves, and count it.
	require.Contains(t, alerts["SextonGhostUsersFailing"].Expr, metrics.GhostErrorAlerts)
	require.Contains(t, alerts["SextonTombstonesOld"].Expr, " > 600")
}

func TestCheckExpressionFinds(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"there is no metric sexton_nothing"}, checkExpression("sexton_nothing > 1"))
	require.Equal(t, []string{"metric sexton_up has no label kind"}, checkExpression(`sexton_up{kind="x"}`))
	require.Equal(t, []string{`label outcome of metric sexton_runs_total is never "lost"`}, checkExpression(`sexton_runs_total{outcome="lost"}`))
	require.Equal(t, []string{`label reason of metric sexton_waiting is never "rain"`}, checkExpression(`sexton_waiting{reason=~"lock|rain"}`))
	require.Equal(t, []string{"no metric of the expression has the label kind"}, checkExpression(`max by (kind) (sexton_up)`))
	require.Empty(t, checkExpression(`histogram_quantile(0.5, sum by (le, kind) (rate(sexton_run_duration_seconds_bucket{kind=~"$kind"}[5m])))`))
}

// The dashboard draws what the program shows, each panel in a place of its own.
func TestDashboardNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "deploy", "grafana", "sexton.json")))(t)
	type position struct{ X, Y, W, H int }
	var dashboard struct {
		UID    string
		Panels []struct {
			ID      int
			Title   string
			GridPos position `json:"gridPos"`
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Query string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.Equal(t, "sexton", dashboard.UID)
	require.NotEmpty(t, dashboard.Panels)
	var taken []position
	ids := map[int]bool{}
	for _, panel := range dashboard.Panels {
		at := panel.GridPos
		require.False(t, ids[panel.ID], "id of %s", panel.Title)
		ids[panel.ID] = true
		require.LessOrEqual(t, at.X+at.W, 24, panel.Title)
		for _, other := range taken {
			apart := at.X >= other.X+other.W || other.X >= at.X+at.W || at.Y >= other.Y+other.H || other.Y >= at.Y+at.H
			require.True(t, apart, "%s lies over another panel", panel.Title)
		}
		taken = append(taken, at)
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			require.Empty(t, checkExpression(target.Expr), panel.Title)
			require.Regexp(t, selectorPattern, target.Expr, panel.Title)
		}
	}
	for _, variable := range dashboard.Templating.List {
		if variable.Name != "datasource" {
			require.Empty(t, checkExpression(variable.Query), variable.Name)
		}
	}
}
