package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"sexton/internal/extdiff"
	"sexton/internal/metrics"
	"sexton/internal/pgtest"
	riverjobs "sexton/river_jobs"
)

// readDeployFile returns the text of a file in the folder deploy.
func readDeployFile(t *testing.T, name string) string {
	return string(pgtest.Must(os.ReadFile(filepath.Join("..", "deploy", name)))(t))
}

// The image and the released binaries must be built with the same flags. The image must
// use the Go version of go.mod.
func TestReleaseAndImageUseTheSameBuild(t *testing.T) {
	t.Parallel()
	flags := regexp.MustCompile(`go build -trimpath -ldflags "-s -w -X (sexton/internal/cli\.version)=\$(?:VERSION|version)" -o \S+ \./cmd/worker`)
	require.Regexp(t, flags, readDeployFile(t, "Dockerfile"))
	require.Regexp(t, flags, readDeployFile(t, "release"))
	module := pgtest.Must(os.ReadFile(filepath.Join("..", "go.mod")))(t)
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module))
	require.Len(t, language, 2)
	require.Contains(t, readDeployFile(t, "Dockerfile"), " golang:"+language[1]+" AS build")
	require.Contains(t, readDeployFile(t, "Dockerfile"), "\nUSER 65532:65532\n",
		"the user must be a number other than root, because an empty image has no user names")
}

// Before it builds anything, deploy/release refuses a version that would add linker
// flags.
func TestReleaseRefusesInvalidVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1 -X other=1", "$(id)", "a/b"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join("..", "deploy", "release"), version, t.TempDir())
		out, err := cmd.CombinedOutput()
		require.Error(t, err, version)
		require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s", out)
		require.Contains(t, string(out), "is not a version")
	}
}

// A binary that was built with the version flag prints that version.
func testVersionIsStamped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sexton")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags",
		"-X sexton/internal/cli.version=v7.8.9", "-o", path, "./cmd/worker")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out = pgtest.Must(exec.CommandContext(t.Context(), path, "version").Output())(t)
	require.True(t, strings.HasPrefix(string(out), "sexton v7.8.9 ("), "%s", out)
}

// testExample runs the commands of the compose file in its order with its files.
func testExample(t *testing.T, p program) {
	var compose struct {
		Services map[string]struct {
			Command        []string
			ReadOnly       bool `yaml:"read_only"`
			Environment    map[string]string
			Secrets, Ports []string
			CapDrop        []string `yaml:"cap_drop"`
			DependsOn      map[string]struct{ Condition string }
		}
		Secrets map[string]struct{ File string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(readDeployFile(t, "compose.yml")), &compose))
	for _, name := range []string{"migrate", "triggers", "grants", "worker"} {
		require.True(t, compose.Services[name].ReadOnly, name)
		require.Equal(t, []string{"ALL"}, compose.Services[name].CapDrop, name)
	}
	db := pgtest.New(t)
	db.Exec(readDeployFile(t, "example/schema.sql"))
	folder := filepath.Join("..", "deploy", "example")
	// All databases of the server share its roles, so the test needs a role with a unique
	// name.
	role := db.CreateRole()
	for _, name := range []string{"migrate", "grants", "triggers"} {
		command := compose.Services[name].Command
		require.Contains(t, compose.Services[name].Environment["DATABASE_URL"], "postgres://postgres:", name)
		if index := slices.Index(command, "--worker"); index > 0 {
			require.Contains(t, compose.Services["worker"].Environment["DATABASE_URL"], "postgres://"+command[index+1]+":")
			require.Contains(t, readDeployFile(t, "example/roles.sql"), "CREATE ROLE "+command[index+1]+" LOGIN ")
			command[index+1] = role
		}
		p.run(t, folder, db.URL, 0, command...)
	}
	db.Exec("DELETE FROM projects WHERE id = 1")
	p.run(t, folder, db.AsRole(role), 0, "job", "run", kind)
	doctor := p.run(t, folder, db.AsRole(role), 0, "doctor")
	require.NotContains(t, doctor, "superuser")
	require.EqualValues(t, 900, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM issues"))

	worker := compose.Services["worker"]
	require.Equal(t, []string{"127.0.0.1:8686:8686"}, worker.Ports, "only this machine may connect")
	require.Equal(t, "0.0.0.0:8686", worker.Environment["SEXTON_HTTP__LISTEN"])
	require.Contains(t, readDeployFile(t, "Dockerfile"), "\nEXPOSE 8686\n")
	require.Len(t, worker.Secrets, 1)
	require.Equal(t, "/run/secrets/"+worker.Secrets[0], worker.Environment["SEXTON_HTTP__PASSWORD_FILE"])
	require.Contains(t, compose.Secrets[worker.Secrets[0]].File, "${PAGE_PASSWORD_FILE:?",
		"the password must have no default")
	require.NotEmpty(t, worker.Environment["DATABASE_URL"])
	checkConfiguration(t, p, folder, db.URL, worker.Environment)
}

// testKubernetes makes the program read the files and environment of a pod of
// deploy/kubernetes. tools/release decodes the manifests.
func testKubernetes(t *testing.T, p program) {
	dir := t.TempDir()
	p.environ = append(slices.Clone(p.environ), "SEXTON_HTTP__LISTEN=0.0.0.0:8686")
	require.Contains(t, readDeployFile(t, "kubernetes/worker.yaml"), `{name: SEXTON_HTTP__LISTEN, value: "0.0.0.0:8686"}`)
	require.Contains(t, readDeployFile(t, "kubernetes/worker.yaml"), "DATABASE_URL: postgres://sexton:")
	require.Contains(t, readDeployFile(t, "kubernetes/install.yaml"), "args: [grants, --worker, sexton, --apply]\n")
	for document := range strings.SplitSeq(readDeployFile(t, "kubernetes/worker.yaml"), "\n---\n") {
		var object struct {
			Data       map[string]string
			StringData map[string]string `yaml:"stringData"`
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		for name, text := range object.Data {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		for name, value := range object.StringData {
			if name != "DATABASE_URL" {
				p.environ = append(p.environ, name+"="+value)
			}
		}
	}
	p.run(t, dir, "postgres://ann@localhost/app", 0, "config", "check")
}

// checkConfiguration makes the program read its configuration with the environment of a
// deployment.
func checkConfiguration(t *testing.T, p program, folder, url string, environment map[string]string) {
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("geheim\n"), 0o600))
	require.NotEmpty(t, environment["SEXTON_HTTP__PASSWORD_FILE"])
	p.environ = slices.Clone(p.environ)
	for name, value := range environment {
		switch {
		case name == "SEXTON_HTTP__PASSWORD_FILE":
			p.environ = append(p.environ, name+"="+password)
		case strings.HasPrefix(name, "SEXTON_"):
			p.environ = append(p.environ, name+"="+value)
		}
	}
	var shown struct {
		HTTP struct {
			Listen, User string
			PasswordFile string `yaml:"password_file"`
		}
	}
	p.run(t, folder, url, 0, "config", "check")
	require.NoError(t, yaml.Unmarshal([]byte(p.run(t, folder, url, 0, "config", "show")), &shown))
	require.Equal(t, environment["SEXTON_HTTP__LISTEN"], shown.HTTP.Listen)
	require.Equal(t, environment["SEXTON_HTTP__USER"], shown.HTTP.User)
	require.Equal(t, password, shown.HTTP.PasswordFile)
}

// testPageUnit checks the systemd drop-in that enables the page, and passes the password
// like systemd.
func testPageUnit(t *testing.T, p program) {
	require.Contains(t, readDeployFile(t, "systemd/sexton.service"), "\nExecReload=/bin/kill -HUP $MAINPID\n",
		"docs/operations.md describes the reload")
	unit := readDeployFile(t, "systemd/page.conf")
	environment := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^Environment=(\w+)=(.*)$`).FindAllStringSubmatch(unit, -1) {
		environment[line[1]] = line[2]
	}
	credential := regexp.MustCompile(`(?m)^LoadCredential=(\w+):/etc/sexton/\w+$`).FindStringSubmatch(unit)
	require.Len(t, credential, 2)
	require.Equal(t, "%d/"+credential[1], environment["SEXTON_HTTP__PASSWORD_FILE"], "systemd's path of the credential")
	folder := filepath.Join("..", "deploy", "example")
	checkConfiguration(t, p, folder, "postgres://ann@localhost/app", environment)

	// docs/operations.md describes the same settings as part of sexton.yaml, so the test
	// checks them in that form, too.
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, credential[1]), []byte("geheim\n"), 0o600))
	path := filepath.Join(dir, "sexton.yaml")
	definitions := pgtest.Must(filepath.Abs(filepath.Join(folder, "loose_foreign_keys.yml")))(t)
	settings := "databases: {main: {url: \"${DATABASE_URL}\"}}\nloose_foreign_keys: {definitions: [\"" + definitions +
		"\"]}\n" +
		"http: {listen: \":8686\", user: ops, password_file: \"${CREDENTIALS_DIRECTORY}/" + credential[1] + "\"}\n"
	require.NoError(t, os.WriteFile(path, []byte(settings), 0o600))
	p.environ = append(slices.Clone(p.environ), "CREDENTIALS_DIRECTORY="+dir)
	p.run(t, dir, "postgres://ann@localhost/app", 0, "config", "check", "--config", path)
}

type alert struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func readAlerts(t *testing.T) map[string]alert {
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

// selectorPattern matches metric names with their label matchers in braces.
// matcherPattern matches a single label matcher.
var (
	selectorPattern = regexp.MustCompile(`\b(sexton_[a-z_]+)(?:\{([^}]*)\})?`)
	matcherPattern  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	groupPattern    = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// labelValues returns the label values that the program uses, by metric and label. Other
// labels have values from the configuration.
func labelValues() map[string]map[string][]string {
	states := []string{"listening", "polling", "disconnected"}
	return map[string]map[string][]string{
		"sexton_runs_total": {"outcome": {"done", "over_limit", "skipped", "failed"}},
		"sexton_listener":   {"state": states},
		"sexton_queue_jobs": {"state": {
			"available", "pending", "running", "retryable", "scheduled",
			"discarded",
		}},
		"sexton_waiting":                      {"reason": documentedReasons()},
		"sexton_external_diffs_skipped_total": {"reason": skipReasons()},
		"sexton_backlog_": {"deletion_table": {
			"loose_foreign_keys_deleted_records", "users_ghost_user_migrations", "import_placeholder_user_details",
			"groups", "group_deletion_schedules", "merge_request_diffs",
		}},
	}
}

// skipReasons returns the reasons for which a diff may be skipped.
func skipReasons() (reasons []string) {
	for _, reason := range extdiff.Skips() {
		reasons = append(reasons, string(reason))
	}
	return reasons
}

// documentedReasons returns the reasons for waiting that docs/troubleshooting.md
// explains.
func documentedReasons() []string {
	text, err := os.ReadFile(filepath.Join("..", "docs", "troubleshooting.md"))
	if err != nil {
		return nil
	}
	_, afterHeader, _ := strings.Cut(string(text), "| word |")
	table, _, _ := strings.Cut(afterHeader, "\n\n")
	var reasons []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		reasons = append(reasons, row[1])
	}
	return reasons
}

// checkExpression returns an error for each metric and label of an expression that the
// program does not have.
func checkExpression(expr string) []string {
	var findings []string
	known := map[string]metrics.Metric{}
	for _, metric := range metrics.Table() {
		known[metric.Name] = metric
		if metric.Type == metrics.Histogram {
			bucket := metric
			bucket.Labels = append(slices.Clone(metric.Labels), "le")
			known[metric.Name+"_bucket"], known[metric.Name+"_sum"], known[metric.Name+"_count"] = bucket, metric,
				metric
		}
	}
	var labels []string
	for _, selector := range selectorPattern.FindAllStringSubmatch(expr, -1) {
		metric, exists := known[selector[1]]
		if !exists {
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
		// A matcher whose value is a variable of the dashboard is not checked.
		return nil
	}
	var findings []string
	for prefix, byLabel := range labelValues() {
		for one := range strings.SplitSeq(value, "|") {
			if strings.HasPrefix(metric.Name, prefix) && byLabel[label] != nil &&
				!slices.Contains(byLabel[label], one) {
				findings = append(findings, fmt.Sprintf("label %s of metric %s is never %q", label, metric.Name, one))
			}
		}
	}
	return findings
}

func TestAlertsUseExistingMetrics(t *testing.T) {
	t.Parallel()
	guide := pgtest.Must(os.ReadFile(filepath.Join("..", "docs", "alerts.md")))(t)
	rules := pgtest.Must(os.ReadFile(filepath.Join("..", "deploy", "prometheus", "alerts_test.yml")))(t)
	alerts := readAlerts(t)
	for name, alert := range alerts {
		require.Empty(t, checkExpression(alert.Expr), name)
		require.Contains(t, []string{"critical", "warning", "info"}, alert.Labels["severity"], name)
		require.NotEmpty(t, alert.Annotations["summary"], name)
		require.NotEmpty(t, alert.Annotations["description"], name)
		require.Equal(t, `{{ or $externalLabels.sexton_docs "file:///usr/share/doc/sexton/docs" }}/alerts.md#`+
			strings.ToLower(name), alert.Annotations["runbook_url"], name)
		require.Contains(t, string(guide), "\n## "+name+"\n", "docs/alerts.md must have a section for the alert")
		require.Contains(t, string(rules), "\n        alertname: "+name+"\n", "alerts_test.yml must test the alert")
	}
	for _, section := range regexp.MustCompile(`(?m)^## (Sexton\w+)$`).FindAllStringSubmatch(string(guide), -1) {
		require.Contains(t, alerts, section[1], "the alert of a section in docs/alerts.md must exist")
	}
}

// If the program warns at a limit, the alert uses the same limit.
func TestAlertLimitsMatchTheProgram(t *testing.T) {
	t.Parallel()
	alerts := readAlerts(t)
	require.True(t, strings.HasSuffix(alerts["SextonGhostUsersBacklog"].Expr,
		fmt.Sprintf(" > %d", riverjobs.GhostBacklogAlert)), "the limit at which runs warn")
	// The program itself decides when too many users fail, and counts these runs in the
	// metric GhostErrorAlerts. So the alert needs no limit.
	require.Contains(t, alerts["SextonGhostUsersFailing"].Expr, metrics.GhostErrorAlerts)
	require.Contains(t, alerts["SextonTombstonesOld"].Expr, " > 600")
}

// The dashboard uses existing metrics, and its panels do not overlap.
func TestDashboardUsesExistingMetrics(t *testing.T) {
	t.Parallel()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "deploy", "grafana", "sexton.json")))(t)
	type gridPosition struct{ X, Y, W, H int }
	var dashboard struct {
		UID    string
		Panels []struct {
			ID      int
			Title   string
			GridPos gridPosition `json:"gridPos"`
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Query string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.Equal(t, "sexton", dashboard.UID)
	require.NotEmpty(t, dashboard.Panels)
	for _, metric := range metrics.Table() {
		if strings.Contains(metric.Name, "placeholder") || strings.Contains(metric.Name, "_groups_") ||
			strings.Contains(metric.Name, "_diffs_") ||
			slices.Contains([]string{
				"sexton_clean_up_latency_seconds", metrics.Listener, metrics.BacklogDeferred, metrics.BacklogConfirming,
				metrics.BacklogGivenUp,
				metrics.GhostUsersDestroyed, metrics.Deletions,
			}, metric.Name) {
			require.Contains(t, string(text), metric.Name, "the dashboard must use the metric")
		}
	}
	var taken []gridPosition
	ids := map[int]bool{}
	for _, panel := range dashboard.Panels {
		position := panel.GridPos
		require.False(t, ids[panel.ID], "id of %s", panel.Title)
		ids[panel.ID] = true
		require.LessOrEqual(t, position.X+position.W, 24, panel.Title)
		for _, other := range taken {
			apart := position.X >= other.X+other.W || other.X >= position.X+position.W || position.Y >= other.Y+other.H || other.Y >= position.Y+position.H
			require.True(t, apart, "%s overlaps another panel", panel.Title)
		}
		taken = append(taken, position)
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
