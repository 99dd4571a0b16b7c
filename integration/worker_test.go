package integration

import (
	"cmp"
	"context"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	"sexton/internal/pgschema"
	"sexton/internal/pgtest"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

// worker is one Sexton process, run inside the test.
type worker struct {
	config *config.Config
	db     database.Database
	runner *jobrun.Runner
	// bindings, if set, are kept from run to run.
	bindings *riverjobs.Bindings
	logger   *slog.Logger
}

// newWorker connects a worker to the database. Its lock timeout is long enough for locks that the test gives
// up as soon as it sees the worker wait. The tracer, which may be nil, sees all that it sends.
func newWorker(t *testing.T, db *pgtest.Database, holder string, log *slog.Logger, tracer pgx.QueryTracer) *worker {
	t.Helper()
	c := pgtest.Must(config.Load(config.Options{Dir: t.TempDir(), Environ: []string{
		"DATABASE_URL=" + db.URL, "SEXTON_JOBS__LOCK_TIMEOUT=4s",
	}}))(t)
	settings := pgtest.Must(pgxpool.ParseConfig(db.URL))(t)
	settings.ConnConfig.Tracer = tracer
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(pool.Close)

	w := &worker{config: c, logger: log}
	w.db = database.Database{
		Name: "main", Pool: pool, Direct: settings.ConnConfig,
		Names: pgschema.Names{Jobs: c.Jobs.Schema, Tracked: c.Databases[0].Schema},
	}
	w.runner = &jobrun.Runner{Leases: &lease.Manager{Jobs: w.db, Holder: holder}, Logger: w.logger}
	return w
}

// track installs the triggers that the definitions need.
func (w *worker) track(ctx context.Context, t require.TestingT, defs []definitions.Definition) {
	conn := pgtest.Must(w.db.Pool.Acquire(ctx))(t)
	defer conn.Release()
	parents, problems, err := loosefk.Resolve(ctx, []loosefk.Site{{Name: w.db.Name, Schema: w.db.Names.Tracked, DB: conn}}, defs)
	require.NoError(t, err)
	require.NoError(t, problems.Err())
	cfg, tracked := riverjobs.Tracking(w.config, w.db, parents[w.db.Name])
	pgtest.Must(triggers.Install(ctx, conn.Conn(), cfg, tracked))(t)
}

// run runs one pass of the clean-up.
func (w *worker) run(ctx context.Context, defs []definitions.Definition) (jobrun.Report, error) {
	deps := riverjobs.Deps{Bindings: cmp.Or(w.bindings, &riverjobs.Bindings{}), Config: w.config, Databases: []database.Database{w.db}, Definitions: defs, Runner: w.runner, Logger: w.logger}
	return riverjobs.Jobs(w.config)[0].Run(ctx, deps, riverjobs.Pass{Database: w.db.Name})
}
