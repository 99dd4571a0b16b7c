package integration

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

const leaseKey = "loose_foreign_keys/cleanup_worker:main"

// gatedTables creates parents, children and a trigger that runs between the DELETE of
// children and its COMMIT. The trigger records the session and the child, and stops the
// session while the gate is closed.
const gatedTables = dbtest.Gates + `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON children (parent_id);
INSERT INTO parents SELECT generate_series(1, 10);
INSERT INTO children SELECT number, number % 10 + 1 FROM generate_series(0, 99) AS number;

CREATE TABLE deletions (child_id bigint PRIMARY KEY, session text NOT NULL);
CREATE FUNCTION note_deletion() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = '1min' AS $$
BEGIN
    INSERT INTO deletions VALUES (OLD.id, current_setting('application_name'));
    PERFORM stop_at_gate('children');
    RETURN NULL;
END $$;
CREATE TRIGGER note_deletion AFTER DELETE ON children FOR EACH ROW EXECUTE FUNCTION note_deletion();`

const gatedDefinitions = `children:
  - {table: parents, column: parent_id, on_delete: async_delete, delete_limit: 3}
`

// gatedConfig sets the pace normal, whose long timeouts let a batch wait at the gate. It
// disables HTTP because the workers of one machine would compete for the default port.
const gatedConfig = "databases: {main: {url: \"${DATABASE_URL}\", pace: normal}}\nhttp: {listen: \"\"}\n"

// gatedSite is a database with the tables of gatedTables, in which parents 1 to 5 were
// deleted, and a folder with the program's configuration.
type gatedSite struct {
	db   *pgtest.Database
	dir  string
	defs []definitions.Definition
}

func newGatedSite(t *testing.T) gatedSite {
	s := gatedSite{db: dbtest.New(t).Database, dir: t.TempDir()}
	s.db.Exec(gatedTables)
	path := filepath.Join(s.dir, "loose_foreign_keys.yml")
	require.NoError(t, os.WriteFile(path, []byte(gatedDefinitions), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "sexton.yaml"), []byte(gatedConfig), 0o600))
	s.defs = pgtest.Must(definitions.Load([]string{path}))(t)
	newWorker(t, s.db, "installer", pgtest.Logger(t), nil).track(t.Context(), t, s.defs)
	s.db.Exec("DELETE FROM parents WHERE id <= 5")
	return s
}

// expireLease expires the lease, as if the worker had not renewed it for long enough.
func (s gatedSite) expireLease() {
	s.db.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp() WHERE key = $1", leaseKey)
}

// pause is a tracer that stops a worker before the second batch in which it would delete
// children. The worker's session is then idle and holds no locks.
type pause struct {
	ctx              context.Context //nolint:containedctx // the end of the test ends the pause
	deletions        int
	reached, resumed chan struct{}
}

func (p *pause) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, query := range data.Batch.QueuedQueries {
		if strings.HasPrefix(query.SQL, "DELETE FROM ONLY") {
			p.deletions++
		}
	}
	if p.deletions == 2 && p.reached != nil {
		close(p.reached)
		p.reached = nil
		select {
		case <-p.resumed:
		case <-p.ctx.Done():
		}
	}
	return ctx
}

func (*pause) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*pause) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (*pause) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*pause) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestFenceStopsFormerHolder pauses a worker between two batches until its lease has
// expired and another worker has finished the work. When the worker continues, it must
// not begin another batch, even if there is new work.
func TestFenceStopsFormerHolder(t *testing.T) {
	t.Parallel()
	s := newGatedSite(t)
	tracer := &pause{ctx: t.Context(), reached: make(chan struct{}), resumed: make(chan struct{})}
	reached := tracer.reached
	first := newWorker(t, s.db, "first", pgtest.Logger(t), tracer)

	var report jobrun.Report
	var failure error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		report, failure = first.run(t.Context(), s.defs)
	}()
	select {
	case <-reached:
	case <-ended:
		require.Fail(t, "the first worker ended before its second batch", "%+v: %v", report, failure)
	}
	s.expireLease()
	second := pgtest.Must(newWorker(t, s.db, "second", pgtest.Logger(t), nil).run(t.Context(), s.defs))(t)
	require.Equal(t, jobrun.Done, second.Outcome)
	s.db.Exec("DELETE FROM parents WHERE id = 6")
	close(tracer.resumed)
	<-ended

	require.Equal(t, jobrun.Failed, report.Outcome, "a run must fail after another worker has taken its lease")
	require.ErrorIs(t, failure, lease.ErrLost)
	require.Equal(t, int64(1), pgtest.Scalar[int64](t, s.db, backlogSQL),
		"the later tombstone must be left to the next lease holder")
	require.Equal(t, int64(10), pgtest.Scalar[int64](t, s.db, "SELECT count(*) FROM children WHERE parent_id = 6"))
	require.Equal(t, [][]string{{"#1", "3"}, {"#2", "47"}},
		s.db.Rows("SELECT right(session, 2), count(*) FROM deletions GROUP BY 1 ORDER BY 1"), "deletions per token")
}

// worker runs Sexton's jobs inside the test process.
type worker struct {
	config *config.Config
	db     database.Database
	runner *jobrun.Runner
	// bindings, if set, are shared by all runs. Otherwise each run gets new bindings.
	bindings *riverjobs.Bindings
	logger   *slog.Logger
}

// newWorker connects a worker to the database. Its lock timeout is longer than the time
// for which the test holds a lock that the worker waits for. The tracer may be nil.
func newWorker(t *testing.T, db *pgtest.Database, holder string, log *slog.Logger, tracer pgx.QueryTracer) *worker {
	c := pgtest.Must(config.Load(config.Options{Dir: t.TempDir(), Environ: []string{
		"DATABASE_URL=" + db.URL, "SEXTON_JOBS__LOCK_TIMEOUT=4s", "SEXTON_LOOSE_FOREIGN_KEYS__CONFIRM_AFTER=1ns",
	}}))(t)
	settings := pgtest.Must(pgxpool.ParseConfig(db.URL))(t)
	settings.ConnConfig.Tracer = tracer
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(pool.Close)

	w := &worker{config: c, logger: log}
	w.db = database.Database{
		Name: "main", Pool: pool, Direct: settings.ConnConfig,
		Names: pgcatalog.Names{Tracked: c.Databases[0].Schema},
	}
	w.runner = &jobrun.Runner{Leases: &lease.Manager{Jobs: w.db, Holder: holder}, Logger: w.logger}
	return w
}

// track installs the triggers for the definitions.
func (w *worker) track(ctx context.Context, t require.TestingT, defs []definitions.Definition) {
	conn := pgtest.Must(w.db.Pool.Acquire(ctx))(t)
	defer conn.Release()
	parents, problems := pgtest.Must2(loosefk.Resolve(ctx,
		[]loosefk.Site{{Name: w.db.Name, Schema: w.db.Names.Tracked, DB: conn}}, defs))(t)
	require.NoError(t, problems.Err())
	cfg, tracked := riverjobs.Tracking(w.config, w.db, parents)
	pgtest.Must(triggers.Install(ctx, conn.Conn(), cfg, tracked))(t)
}

// run runs the loose foreign keys once.
func (w *worker) run(ctx context.Context, defs []definitions.Definition) (jobrun.Report, error) {
	deps := riverjobs.Deps{
		Bindings: cmp.Or(w.bindings, &riverjobs.Bindings{}), Config: w.config,
		Databases: []database.Database{w.db}, Definitions: defs, Runner: w.runner, Logger: w.logger,
	}
	return riverjobs.Jobs(w.config)[0].Run(ctx, deps, riverjobs.Pass{Database: w.db.Name})
}

// testForegroundKilled kills a foreground run, whose lease would last two hours. When the
// run's last heartbeat is 20 s old, the next foreground run must succeed, although no
// worker is running.
func testForegroundKilled(t *testing.T, p program) {
	s := newDiffSite(t, p, diffsInFolder(t))
	s.exec(t, addDiffs, 1, 3)
	keeper := pgtest.Connect(t, s.url)
	pgtest.Exec(t, keeper, "BEGIN; LOCK TABLE sexton.external_diff_cursors")
	first := p.start(t, s.dir, s.url, "job", "run", scheduleDiffs)
	s.wait(t, stopLimit, "the run to have its lease",
		"EXISTS (SELECT FROM sexton.leases JOIN sexton.clients ON client_id = holder WHERE expires_at > now() + interval '1 hour' AND pid = $1)", first.cmd.Process.Pid)
	require.NoError(t, first.cmd.Process.Kill())
	require.Equal(t, -1, first.wait(t))
	pgtest.Exec(t, keeper, "ROLLBACK")

	require.Contains(t, p.run(t, s.dir, s.url, 0, "job", "run", scheduleDiffs, "--json"), `"skipped"`, "the killed run may still be alive")
	s.exec(t, "UPDATE sexton.clients SET seen_at = now() - interval '20 s'")
	require.Contains(t, p.run(t, s.dir, s.url, 0, "job", "run", scheduleDiffs, "--json"), `"done"`)
	require.EqualValues(t, 3, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE kind = $1", moveDiff))
}
