package riverjobs

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/listen"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

func TestMain(m *testing.M) {
	s3test.Prepare()
	pgtest.Main(m)
}

const definitionsFile = `
children:
  - {table: parents, column: parent_id, on_delete: async_delete}
notes:
  - {table: parents, column: parent_id, on_delete: async_nullify}
`

// bundle is a database with three parents, of which each has two children and a note, and
// the dependencies of jobs that work on it.
type bundle struct {
	db   *dbtest.DB
	deps Deps
	log  *pgtest.Journal
}

func setup(t *testing.T, environ ...string) bundle {
	return withDefinitions(t, dbtest.Tracked(t, tables, "parents"), environ...)
}

const tables = `
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
		CREATE TABLE notes (id bigint PRIMARY KEY, parent_id bigint);
		CREATE INDEX ON children (parent_id);
		CREATE INDEX ON notes (parent_id);
		INSERT INTO parents SELECT generate_series(1, 3);
		INSERT INTO children SELECT id, id % 3 + 1 FROM generate_series(1, 6) AS id;
		INSERT INTO notes SELECT id, id FROM parents;`

func withDefinitions(t *testing.T, db *dbtest.DB, environ ...string) bundle {
	defs := pgtest.Must(definitions.Parse(definitions.File{Name: "definitions.yml", Data: []byte(definitionsFile)}))(t)
	b := newBundle(t, db, environ...)
	b.deps.Definitions = defs
	return b
}

// newBundle returns a bundle for a database, without definitions.
func newBundle(t *testing.T, db *dbtest.DB, environ ...string) bundle {
	log := &pgtest.Journal{}
	logger := log.Logger()
	return bundle{db: db, log: log, deps: Deps{
		Bindings: &Bindings{}, Config: configuration(t, environ...), Databases: []database.Database{db.Connected},
		Logger: logger,
		Runner: &jobrun.Runner{Leases: &lease.Manager{Jobs: db.Connected, Holder: "test"}, Logger: logger},
	}}
}

// newApplication returns a bundle of the reference application with the given rows and
// without loose foreign keys, unless environ enables them.
func newApplication(t *testing.T, rows string, environ ...string) bundle {
	db := dbtest.Reference(t)
	db.Exec(rows)
	b := newBundle(t, db, append([]string{"SEXTON_LOOSE_FOREIGN_KEYS__ENABLED=false"}, environ...)...)
	b.insertKinds()
	return b
}

// insertKinds inserts the enabled kinds into sexton.job_kinds, as the worker does at its
// start.
func (b bundle) insertKinds() {
	b.db.Exec("DELETE FROM sexton.job_kinds")
	for _, k := range Kinds(b.deps.Config) {
		b.db.Exec("INSERT INTO sexton.job_kinds (kind, queue, cron, max_attempts, args, defaults) VALUES ($1, $1, $2, $3, $4, $5)",
			k.Kind, k.Cron, k.MaxAttempts, k.Args, k.Defaults)
	}
}

// workOne runs one job in a River client and returns the event of its end.
func (b bundle) workOne(t *testing.T, args river.JobArgs) *river.Event {
	client, stop := b.start(t)
	defer stop()
	events, cancel := client.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobSnoozed)
	defer cancel()
	pgtest.Must(client.Insert(t.Context(), args, nil))(t)
	return <-events
}

// start starts a River client. The client is stopped by stop, or at the end of the test.
func (b bundle) start(t *testing.T) (client *river.Client[pgx.Tx], stop func()) {
	client = b.newClient(t, "test")
	require.NoError(t, client.Start(t.Context()))
	stop = sync.OnceFunc(func() { require.NoError(t, client.Stop(context.WithoutCancel(t.Context()))) })
	t.Cleanup(stop)
	return client, stop
}

// newClient returns a River client with a running listener that receives its
// notifications.
func (b bundle) newClient(t *testing.T, id string) *river.Client[pgx.Tx] {
	listener := &listen.Listener{
		Database: "main", Conn: pgtest.Must(pgx.ParseConfig(b.db.URL))(t), Pool: b.db.Pool(),
		Logger: pgtest.Logger(t),
	}
	client := pgtest.Must(NewClient(b.deps, id, listener))(t)
	forward, received := listener.OnTopic, make(chan struct{}, 1)
	listener.OnTopic = func(payload string) {
		forward(payload)
		select {
		case received <- struct{}{}:
		default:
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { listener.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	pgtest.WaitFor(t, "the listener to receive", func(context.Context) (bool, error) {
		b.db.Exec("SELECT pg_notify('sexton.river_insert', '{}')")
		return len(received) > 0, nil
	})
	return client
}

// enqueue inserts a job with the SQL function enqueue.
func (b bundle) enqueue(t *testing.T, args river.JobArgs) {
	pgtest.Must(Enqueue(t.Context(), b.db.Pool(), b.db.Connected, args.Kind(), args, nil))(t)
}

// mustRun runs one pass in the foreground and requires that it returns no error.
func (b bundle) mustRun(t *testing.T, args river.JobArgs) jobrun.Report {
	return pgtest.Must(run(t.Context(), b.deps, args))(t)
}

func configuration(t *testing.T, environ ...string) *config.Config {
	// The databases are already connected, so this address is never used.
	return pgtest.Must(config.Load(config.Options{
		DatabaseURL: "postgres://nobody@nowhere.invalid/none",
		Dir:         t.TempDir(), Environ: environ,
	}))(t)
}

// run runs one pass in the foreground.
func run(ctx context.Context, deps Deps, args river.JobArgs) (jobrun.Report, error) {
	encoded, err := json.Marshal(args)
	if err != nil {
		return jobrun.Report{}, err
	}
	selected := Pass{Database: deps.jobsDB().Name, Args: encoded}
	if named, ok := args.(LooseForeignKeysCleanupArgs); ok {
		selected.Database = named.Database
	}
	return jobOf(deps, args.Kind()).Run(ctx, deps, selected)
}

func jobOf(deps Deps, kind string) Job {
	jobs := Jobs(deps.Config)
	return jobs[slices.IndexFunc(jobs, func(job Job) bool { return job.Kind == kind })]
}

// due calls the kind's predicate as the worker's subscription does.
func (b bundle) due(t *testing.T, kind string) listen.Due {
	return pgtest.Must(jobOf(b.deps, kind).Subscription(b.deps, b.db.Connected).Due(t.Context(), b.db.Pool(), false))(t)
}
