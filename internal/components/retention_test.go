package components_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/components"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/operator"
	"sexton/internal/pgtest"
	riverjobs "sexton/river_jobs"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestRetentionIsShown verifies that plan, status, failures, doctor, metrics, grants and
// the page show a component that they have no code for.
func TestRetentionIsShown(t *testing.T) {
	t.Parallel()
	d := pgtest.FromTemplate(t, "retention in components", func(ctx context.Context, url string) error {
		conn, err := pgx.ParseConfig(url)
		if err == nil {
			_, err = migrate.Up(ctx, slog.New(slog.DiscardHandler), migrate.Database{
				Name: "main", Conn: conn, TrackedSchema: "public", Jobs: true,
				Components: []string{migrate.LooseForeignKeys, "retention"},
			})
		}
		return err
	})
	db := database.Database{Name: "main", Pool: d.Pool(), Sessions: d.Pool(), Names: dbtest.Names()}
	d.Exec(`
		CREATE TABLE sessions (id bigint PRIMARY KEY, expires_at timestamptz); CREATE INDEX ON sessions (expires_at);
		CREATE TABLE pages (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions); CREATE INDEX ON pages (session_id);
		INSERT INTO sessions SELECT n, now() - interval '1 day' FROM generate_series(1, 3) AS n;
		INSERT INTO pages VALUES (7, 2);
		CREATE TABLE visits (id bigint, at timestamptz);
		INSERT INTO visits VALUES (1, '2019-01-01 UTC'), (2, now());`)
	path := filepath.Join(t.TempDir(), "sexton.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`loose_foreign_keys: {enabled: false}
retention:
  enabled: true
  rules:
    - {table: sessions, column: expires_at, keep: 0s}
    - {table: visits, column: at, keep: 30d, dry_run: true}
`), 0o600))
	c := pgtest.Must(config.Load(config.Options{Path: path, DatabaseURL: d.URL}))(t)
	all := &installation.Connections{Config: c, Databases: []database.Database{db}, Down: map[string]error{}}
	bound := &installation.Bound{Connections: all}

	plans := pgtest.Must(operator.Plan(t.Context(), bound))(t)
	require.Len(t, plans[0].Jobs, 1)
	require.Equal(t, "3 rows", plans[0].Jobs[0].Text())
	var text strings.Builder
	plans[0].Jobs[0].Details.Print(&text)
	require.Regexp(t, `sessions.expires_at\W+3\W+\S+Z\W+sessions_expires_at_idx\W+-\n`, text.String())
	require.Regexp(t, `visits.at\W+1 \(dry run\)\W+2019-01-01T00:00:00Z\W+-\n`, text.String())
	require.Contains(t, text.String(),
		"pages.session_id refers to sessions, and foreign key pages_session_id_fkey has no ON DELETE action")
	require.Contains(t, string(pgtest.Must(json.Marshal(plans[0].Jobs[0]))(t)),
		`"details":{"rules":[{"rule":"sessions.expires_at","due":3,`)

	job := riverjobs.Jobs(c)[0]
	runner := &jobrun.Runner{Leases: bound.Leases("test"), Logger: slog.New(slog.DiscardHandler)}
	deps := riverjobs.Deps{
		Config: c, Databases: all.Databases, Bindings: &riverjobs.Bindings{},
		Logger: slog.New(slog.DiscardHandler), Runner: runner,
	}
	report, err := job.Run(t.Context(), deps, riverjobs.Pass{Database: "main"})
	require.ErrorContains(t, err, "1 of the rules failed: sessions.expires_at: pages: the row with id 7 refers to sessions")
	require.Equal(t, jobrun.Failed, report.Outcome)
	require.Contains(t, string(report.Stats), `"deleted":{"sessions":2}`)
	require.Contains(t, string(report.Stats), `"kept":{"sessions.expires_at":1}`)
	require.Contains(t, string(report.Stats), `"due":{"visits.at":1}`)

	reading := pgtest.Must(operator.Read(t.Context(), operator.Bound(bound)))(t)
	require.EqualValues(t, 1, reading.DeletionTables[0].Pending)
	require.EqualValues(t, 1, reading.DeletionTables[0].Deferred)
	text.Reset()
	reading.DeletionTables[0].Details.Print(&text)
	require.Regexp(t, `sessions.expires_at\W+1\W+1\W.*foreign key pages_session_id_fkey`, text.String())

	failed := pgtest.Must(operator.ReadFailures(t.Context(), all, 10))(t)
	require.Len(t, failed.Failures, 1)
	require.Equal(t, "rule sessions.expires_at", failed.Failures[0].What)
	page := pgtest.Must(operator.NewPageSource(bound, &riverjobs.Bindings{}, deps.Logger).Overview(t.Context()))(t)
	require.Equal(t, "row", page.DeletionTables[0].Unit)
	require.Equal(t, failed, page.Failures)
	gauges := operator.Gauges{All: all, Noted: &riverjobs.Bindings{}, Log: deps.Logger}
	require.Contains(t, gauges.Read(t.Context()), metrics.Sample{
		Metric: metrics.BacklogRows, Value: 1, Labels: []string{"main", reading.DeletionTables[0].Table},
	})
	require.Contains(t, components.Grants(components.Granting{Config: c, Database: c.Databases[0]}),
		migrate.TableGrant{Table: `"public"."sessions"`, Privileges: "SELECT, UPDATE, DELETE"})
	d.Exec("DELETE FROM pages")
	message := pgtest.Must(operator.RetryFailures(t.Context(), all,
		components.Retry{Source: "retention", ID: "sessions.expires_at"}, database.Change{Actor: "ann"}))(t)
	require.Equal(t, "1 rule due now", message)
	require.Equal(t, [][]string{{"t"}},
		d.Rows("SELECT due FROM sexton.retention_rules WHERE rule = 'sessions.expires_at'"))

	examined := operator.Examine(t.Context(), c, "")
	defer examined.Close()
	var findings []string
	for _, finding := range examined.Report.Findings {
		if finding.Check == "retention" {
			_, message, _ := strings.Cut(finding.Message, ".yaml:")
			findings = append(findings, message)
		}
	}
	require.Contains(t, findings, "5:7: sessions.expires_at: every row of the table is due")
	require.Contains(t, findings,
		"6:7: visits.at: no index returns due rows in order, so each query reads the whole table")
}
