package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/cli"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Cluster is a Postgres server on which benchmarks create databases.
type Cluster struct {
	*cli.Env

	// Admin is a pool for a database that no benchmark changes. AdminURL is the URL of
	// the database to which Admin connects.
	Admin    *pgxpool.Pool
	AdminURL string
	// Server holds the settings of the server.
	Server Server
	// dir is the folder of the configuration and definition files.
	dir string
}

// progressf prints the current step to standard error.
func (g *Cluster) progressf(format string, args ...any) {
	_, _ = fmt.Fprintf(g.Stderr, format+"\n", args...)
}

// WorkerOptions are the settings of a worker that benchmarks vary.
type WorkerOptions struct {
	// Connections is the number of sessions of a run. 0 means the default of the
	// configuration.
	Connections int
	// Runtime is the time limit of a run.
	Runtime time.Duration
}

// Worker runs a job once per call of Pass, like `sexton job run`.
type Worker struct {
	Pass  func(ctx context.Context) (Pass, error)
	Close func()
}

// Pass is the result of one run.
type Pass struct {
	// More reports whether the run left work for the next run.
	More bool
	// Rows is the number of rows that were deleted or changed. Finished is the number of
	// tombstones that were removed.
	Rows, Finished int64
	// Trouble is the reason why the run was not successful. It is empty if the run
	// succeeded.
	Trouble string
}

// drain runs the job until no work is left, or until the limit has passed. With a limit
// of 0, it does not stop early.
func (w *Worker) drain(ctx context.Context, limit time.Duration) error {
	for began := time.Now(); ; {
		pass, err := w.Pass(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("run the job: %w", err)
		case pass.Trouble != "":
			return fmt.Errorf("run the job: %s", pass.Trouble)
		case !pass.More || limit > 0 && time.Since(began) >= limit:
			return nil
		case pass.Rows+pass.Finished == 0:
			return errors.New("run the job: it changed no rows although work is pending")
		}
	}
}

// ServerSettings returns the settings of a private server for Drain. Commits are written
// to disk, the data sets fit into memory, and neither checkpoints nor vacuums run during
// a measurement.
func ServerSettings() map[string]string {
	buffers := "256MB"
	if available := memory("/proc/meminfo", "MemAvailable:"); available != nil && *available > 4<<30 {
		buffers = "1GB"
	}
	return map[string]string{
		"fsync": "on", "shared_buffers": buffers, "autovacuum": "off", "checkpoint_timeout": "1h",
		"max_wal_size": "8GB",
	}
}

// withTemplate creates a database with the tables, the definitions and the rows of a data
// set. It calls do with the name of the database, and drops it.
func (g *Cluster) withTemplate(ctx context.Context, s dataSet, do func(template string) error) (err error) {
	name, url, drop, err := g.create(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if err := g.fill(ctx, url, s); err != nil {
		return err
	}
	return do(name)
}

func (g *Cluster) fill(ctx context.Context, url string, s dataSet) error {
	conn, closeConn, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer closeConn()
	if _, err := conn.Exec(ctx, s.render("children.sql")); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	all, err := g.install(ctx, url, s.definitions(), s.environ()...)
	if err != nil {
		return err
	}
	all.Close()
	for _, statement := range append(s.fillStatements(), "VACUUM (FREEZE, ANALYZE)") {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("fill tables: %w", err)
		}
	}
	return nil
}

// connect opens a connection to a database of the benchmark.
func connect(ctx context.Context, url string) (conn *pgx.Conn, closeConn func(), err error) {
	if conn, err = pgx.Connect(ctx, url); err != nil {
		return nil, nil, fmt.Errorf("connect to the benchmark's database: %w", err)
	}
	return conn, func() { _ = conn.Close(context.WithoutCancel(ctx)) }, nil
}

// prepareCopy gives all copies the same state before a measurement. It reads the data
// into memory if pg_prewarm is available, and writes a checkpoint if the role has the
// privilege.
func prepareCopy(ctx context.Context, conn *pgx.Conn) error {
	const (
		available = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pg_prewarm')"
		prewarm   = `SELECT pg_prewarm(oid) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')`
	)
	var prewarms bool
	if err := conn.QueryRow(ctx, available).Scan(&prewarms); err != nil {
		return fmt.Errorf("query pg_prewarm: %w", err)
	}
	if prewarms {
		for _, statement := range []string{"CREATE EXTENSION IF NOT EXISTS pg_prewarm", prewarm} {
			if _, err := conn.Exec(ctx, statement); err != nil && !denied(err) {
				return fmt.Errorf("prewarm data: %w", err)
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

// walPosition returns the number of WAL bytes that the server has written since it was
// created.
func walPosition(ctx context.Context, conn querier) (int64, error) {
	var position int64
	err := conn.QueryRow(ctx, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&position)
	return position, problem.Doing(err, "read WAL position")
}

// memory returns the size in the line that begins with name in a file below /proc. It
// returns nil if there is no such file or line.
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
