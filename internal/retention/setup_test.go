package retention_test

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
	"sexton/internal/retention"
)

func TestMain(m *testing.M) {
	if !pgtest.Long {
		// Each check creates two schemas, so the default of 100 checks takes too long.
		if err := flag.Set("rapid.checks", "20"); err != nil {
			os.Exit(1)
		}
	}
	pgtest.Main(m)
}

const day = 24 * time.Hour

// setup returns a database with the retention component and tables.
func setup(tb testing.TB, tables string) *dbtest.DB {
	d := pgtest.FromTemplate(tb, "retention", func(ctx context.Context, url string) error {
		conn, err := pgx.ParseConfig(url)
		if err != nil {
			return err
		}
		_, err = migrate.Up(ctx, slog.New(slog.DiscardHandler), migrate.Database{
			Name: "main", Conn: conn, TrackedSchema: "public", Jobs: true,
			Components: []string{migrate.LooseForeignKeys, "retention"},
		})
		return err
	})
	db := &dbtest.DB{Database: d, Connected: database.Database{
		Name: "main", Pool: d.Pool(), Sessions: d.Pool(),
		Names: dbtest.Names(),
	}}
	db.Exec(tables)
	return db
}

func resolve(t require.TestingT, db *dbtest.DB, rules ...retention.Rule) (*retention.Plan, problem.List) {
	return pgtest.Must2(retention.Resolve(context.Background(), db.Pool(), "", "public", rules))(t)
}

// engine returns an engine for rules. It requires that the rules have no errors.
func engine(t *testing.T, db *dbtest.DB, rules ...retention.Rule) *retention.Engine {
	session, _ := db.Session(t, "retention")
	return engineOn(t, db, session, rules...)
}

func engineOn(t require.TestingT, db *dbtest.DB, session *batch.Session, rules ...retention.Rule) *retention.Engine {
	plan, problems := resolve(t, db, rules...)
	require.NoError(t, problems.Err())
	return &retention.Engine{Session: session, Plan: plan, Runtime: time.Minute}
}

func run(t *testing.T, e *retention.Engine) *retention.Stats {
	stats, err := e.Run(t.Context())
	require.NoError(t, err)
	return stats
}

// afterFirstBatch calls do after the first batch.
func afterFirstBatch(e *retention.Engine, do func()) {
	e.Progress = func(_ context.Context, stats *retention.Stats) {
		if stats.Batches > 0 {
			e.Progress = nil
			do()
		}
	}
}
