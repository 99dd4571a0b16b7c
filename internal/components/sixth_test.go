package components_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/components"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/doctor"
	"sexton/internal/heartbeat"
	"sexton/internal/installation"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/operator"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const sixthTable = "shredder"

// sixth is a family of jobs that shreds documents.
func sixth() *components.Component {
	return &components.Component{
		Key: "documents", Enabled: func(*config.Config) bool { return true },
		Units: map[string]string{sixthTable: "document"},
		Backlog: func(ctx context.Context, _ components.Source, db database.Database) ([]components.Backlog, error) {
			b := components.Backlog{Table: sixthTable, Database: db.Name, Details: sixthDetails{Shredders: 2}}
			err := db.Pool.QueryRow(ctx,
				"SELECT count(*), count(*) FILTER (WHERE error <> '') FROM public.shredder").Scan(&b.Pending,
				&b.Deferred)
			return []components.Backlog{b}, err
		},
		Failures: components.Rows("documents", "document", "to be tried now", "has not failed",
			func(ctx context.Context, all *installation.Connections, limit int) ([]sixthRow, error) {
				rows, err := all.Jobs().Pool.Query(ctx,
					"SELECT id, error FROM public.shredder WHERE error <> '' ORDER BY id LIMIT $1", limit)
				if err != nil {
					return nil, err
				}
				return pgx.CollectRows(rows, pgx.RowToStructByPos[sixthRow])
			},
			func(row sixthRow) int64 { return row.ID },
			func(_ *installation.Connections, row sixthRow) components.Failure {
				return components.Failure{Error: row.Error}
			},
			func(ctx context.Context, all *installation.Connections, id int64) (int64, error) {
				tag, err := all.Jobs().Pool.Exec(ctx,
					"UPDATE public.shredder SET error = '' WHERE error <> '' AND ($1 OR id = $2)", id == 0, id)
				return tag.RowsAffected(), err
			}),
		Gauges: func(b components.Backlog) []metrics.Sample {
			return []metrics.Sample{{
				Metric: "sexton_shredders", Value: float64(b.Details.(sixthDetails).Shredders),
				Labels: []string{b.Database},
			}}
		},
		Grants: func(components.Granting) []migrate.TableGrant {
			return []migrate.TableGrant{{Table: "public.documents", Privileges: "SELECT"}}
		},
		Checks: []components.Check{
			{Name: "shredder_there", When: components.Binding, Look: sixthFinding("bound")},
			{Name: "shredder_fits", When: components.Schema, Look: sixthFinding("fits")},
			{Name: "shredder_full", When: components.Work, Look: sixthFinding("full")},
		},
	}
}

type (
	sixthRow struct {
		ID    int64
		Error string
	}
	sixthDetails struct {
		Shredders int `json:"shredders"`
	}
)

func (d sixthDetails) Print(w io.Writer) { _, _ = fmt.Fprintln(w, d.Shredders) }

func sixthFinding(message string) func(context.Context, *components.Exam) ([]doctor.Finding, error) {
	return func(_ context.Context, x *components.Exam) ([]doctor.Finding, error) {
		return []doctor.Finding{{Severity: problem.Warning, Object: x.DB.Name, Message: message, Fix: "shred"}}, nil
	}
}

// A component that is in the list shows wherever an operator looks, without any other
// edit. It runs alone: it changes the list.
//
//nolint:paralleltest // see above
func TestASixthFamilyShowsEverywhere(t *testing.T) {
	db := dbtest.New(t)
	db.Exec("CREATE TABLE shredder (id bigint PRIMARY KEY, error text NOT NULL); INSERT INTO shredder VALUES (1, ''), (2, ''), (3, 'paper jam')")
	t.Cleanup(components.Add(sixth()))
	c := &config.Config{Databases: []config.Database{{Name: "main", URL: config.URL(db.URL), Schema: "public"}}}
	c.Jobs.Database, c.Jobs.Silence = "main", heartbeat.DefaultSilence
	all := &installation.Connections{Config: c, Databases: []database.Database{db.Connected}, Down: map[string]error{}}
	bound := &installation.Bound{Connections: all}

	reading, err := operator.Read(t.Context(), operator.Bound(bound))
	require.NoError(t, err, "status")
	require.JSONEq(t, `[{"table": "shredder", "database": "main", "pending": 3, "capped": false, "oldest_age_seconds": 0, "deferred": 1, "deferred_capped": false,
		"confirming": 0, "shredders": 2}]`, string(pgtest.Must(json.Marshal(reading.DeletionTables))(t)))

	failed, err := operator.ReadFailures(t.Context(), all, 10)
	require.NoError(t, err, "failures")
	require.Equal(t, []components.Failure{{Source: "documents", ID: "3", What: "document 3", Error: "paper jam"}},
		failed.Failures)

	page, err := operator.NewPageSource(&installation.Bound{Connections: all}, &riverjobs.Bindings{},
		slog.New(slog.DiscardHandler)).Overview(t.Context())
	require.NoError(t, err, "page")
	require.Equal(t, "document", page.DeletionTables[0].Unit)
	require.Equal(t, failed, page.Failures)

	gauges := operator.Gauges{All: all, Noted: &riverjobs.Bindings{}, Log: slog.New(slog.DiscardHandler)}
	samples := gauges.Read(t.Context())
	for _, want := range []metrics.Sample{
		{Metric: metrics.BacklogRows, Value: 3, Labels: []string{"main", sixthTable}},
		{Metric: "sexton_shredders", Value: 2, Labels: []string{"main"}},
	} {
		require.Contains(t, samples, want, "metrics")
	}

	examined := operator.Examine(t.Context(), c, "")
	defer examined.Close()
	var messages []string
	for _, finding := range examined.Report.Findings {
		if finding.Fix == "shred" {
			messages = append(messages, finding.Check+" "+finding.Object+" "+finding.Message)
		}
	}
	require.Equal(t, []string{"shredder_there main bound", "shredder_fits main fits", "shredder_full main full"},
		messages, "doctor")
	require.Contains(t, components.Grants(components.Granting{Config: c, Database: c.Databases[0]}),
		migrate.TableGrant{Table: "public.documents", Privileges: "SELECT"}, "grants")

	said := pgtest.Must(operator.RetryFailures(t.Context(), all, components.Retry{Source: "documents", ID: "3"},
		database.Change{Actor: "ann"}))(t)
	require.Equal(t, "1 document to be tried now", said)
	require.Equal(t, [][]string{{"documents 3"}}, db.Rows("SELECT target FROM sexton.audit"))
}
