package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Cluster is a server on which benchmarks of whole drains make databases of their own: each variant works on
// a fresh copy of the same data.
type Cluster struct {
	// Admin and AdminURL lead to a database of the server that is not touched.
	Admin    *pgxpool.Pool
	AdminURL string
	// Server has what ReadServer says of Admin.
	Server Server
	// Install brings the database at url, which has its tables, to the state that a worker needs.
	Install func(ctx context.Context, url, definitions string) error
	// Open connects a worker to a database that Install has prepared. Duty is the share of its time that it may
	// work, in percent, where its pace knows of one. The tracer sees what it sends.
	Open func(ctx context.Context, url, definitions, duty string, tracer pgx.QueryTracer) (*Worker, error)
	// Pace names that of the worker; only reports use it.
	Pace string
	// Progress takes a line about what is being done.
	Progress func(format string, args ...any)
}

// fullDuty makes a worker go on without pauses, autoDuty as long as nothing else is there.
const fullDuty, autoDuty = "100", "auto"

// Worker runs passes of a job one by one, as `sexton job run` does.
type Worker struct {
	// Args are those of the pass; nil stands for the ones that the job always has.
	Pass func(ctx context.Context, args json.RawMessage) (Pass, error)
	// Undo takes the newest deletion back, where the cluster keeps deletions. It returns how many rows came back.
	Undo  func(ctx context.Context) (int64, error)
	Close func()
}

// Pass is the report of one pass.
type Pass struct {
	// More reports that the pass left something to the next one.
	More bool
	// Rows were deleted or changed, Finished are the tombstones removed or the users deleted.
	Rows, Finished int64
	// Trouble says why the pass did not do all it should have; empty where it did.
	Trouble string
}

// drain runs passes until one ends by itself. Whether that left nothing behind is not asked here, as asking
// would be measured.
func (w *Worker) drain(ctx context.Context) (passes int, err error) {
	for {
		pass, err := w.Pass(ctx, nil)
		passes++
		switch {
		case err != nil:
			return passes, fmt.Errorf("run pass: %w", err)
		case pass.Trouble != "":
			return passes, fmt.Errorf("run pass: %s", pass.Trouble)
		case !pass.More:
			return passes, nil
		case pass.Rows+pass.Finished == 0:
			return passes, errors.New("run pass: it did nothing but leave more to do")
		}
	}
}

// atOnce calls do for 0 to n-1, so many at once. The first error stops it.
func atOnce(ctx context.Context, workers int, n int64, do func(ctx context.Context, i int64) error) error {
	all, working := errgroup.WithContext(ctx)
	all.SetLimit(workers)
	for i := int64(0); i < n && working.Err() == nil; i++ {
		all.Go(func() error { return do(working, i) })
	}
	return cmp.Or(all.Wait(), ctx.Err())
}

// ServerSettings are those of a private server for whole drains: data are safe on its disk and fit into its
// memory, and neither checkpoint nor vacuum falls into a measurement.
func ServerSettings() map[string]string {
	buffers := "256MB"
	if available := memory("/proc/meminfo", "MemAvailable:"); available != nil && *available > 4<<30 {
		buffers = "1GB"
	}
	return map[string]string{
		"fsync": "on", "shared_buffers": buffers, "autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "8GB",
	}
}

// template is a database that is copied for every variant.
type template struct{ name string }

// with does something with a template that has the tables and rows of a source, and Sexton's objects.
func (g *Cluster) with(ctx context.Context, from source, do func(data *template) error) (err error) {
	name, url, drop, err := g.create(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if err := g.fill(ctx, url, from); err != nil {
		return err
	}
	return do(&template{name: name})
}

func (g *Cluster) fill(ctx context.Context, url string, from source) error {
	conn, closeConn, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer closeConn()
	if _, err := conn.Exec(ctx, from.create); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	if err := g.Install(ctx, url, from.definitions); err != nil {
		return err
	}
	for _, statement := range append(from.fill, "VACUUM (FREEZE, ANALYZE)") {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("fill tables: %w", err)
		}
	}
	return nil
}

// copyOf makes a copy of a template for a trial: connected, with what prepare, if any, opens there, and settled. Drop it.
func (g *Cluster) copyOf(
	ctx context.Context, data *template, t trial, duty string, prepare func(context.Context, *dataCopy) error,
) (_ *dataCopy, err error) {
	_, url, dropDatabase, err := g.create(ctx, data.name)
	if err != nil {
		return nil, err
	}
	conn, closeConn, err := connect(ctx, url)
	if err != nil {
		return nil, errors.Join(err, dropDatabase())
	}
	p := &dataCopy{cluster: g, trial: t, duty: duty, url: url, conn: conn}
	p.drop = func() error {
		for _, worker := range p.workers {
			worker.Close()
		}
		closeConn()
		return dropDatabase()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.drop())
		}
	}()
	if p.before, err = t.look(ctx, p.conn); err != nil {
		return nil, err
	}
	if prepare != nil {
		if err := prepare(ctx, p); err != nil {
			return nil, err
		}
	}
	return p, settle(ctx, p.conn)
}

// connect opens a connection of its own to one of the benchmark's databases.
func connect(ctx context.Context, url string) (conn *pgx.Conn, closeConn func(), err error) {
	if conn, err = pgx.Connect(ctx, url); err != nil {
		return nil, nil, fmt.Errorf("connect to the benchmark's database: %w", err)
	}
	return conn, func() { _ = conn.Close(context.WithoutCancel(ctx)) }, nil
}

// settle makes copies alike: in memory where the server has the means, and right behind a checkpoint where
// the role may ask for one.
func settle(ctx context.Context, conn *pgx.Conn) error {
	const (
		available = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pg_prewarm')"
		prewarm   = `SELECT pg_prewarm(oid) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')`
	)
	var prewarms bool
	if err := conn.QueryRow(ctx, available).Scan(&prewarms); err != nil {
		return fmt.Errorf("look for pg_prewarm: %w", err)
	}
	if prewarms {
		for _, statement := range []string{"CREATE EXTENSION IF NOT EXISTS pg_prewarm", prewarm} {
			if _, err := conn.Exec(ctx, statement); err != nil && !denied(err) {
				return fmt.Errorf("read data into memory: %w", err)
			} else if err != nil {
				break
			}
		}
	}
	if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil && !denied(err) {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}

func denied(err error) bool { return pgcatalog.SQLState(err) == "42501" }

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// walPosition is how many bytes of WAL the server has written since it was made.
func walPosition(ctx context.Context, conn querier) (int64, error) {
	var position int64
	err := conn.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&position)
	return position, problem.Doing(err, "read WAL position")
}

// memory reads a size from a file of Linux's; nil where there is none.
func memory(path, name string) *int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), name)
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return nil
	}
	return new(kib << 10)
}
