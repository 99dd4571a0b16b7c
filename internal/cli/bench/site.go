package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/problem"
)

const (
	// drainTimeout is the time after which a benchmark fails if children are not deleted.
	drainTimeout = 2 * time.Minute
	// pollInterval is the interval at which a benchmark checks for remaining children. A
	// measured latency can be too long by this interval.
	pollInterval = 500 * time.Microsecond
	// removeTimeout is the time limit for dropping the database of a benchmark.
	removeTimeout = time.Minute
)

// Site is a database on a Cluster with Tables and an installation of Sexton.
type Site struct {
	*Cluster

	// URL and Pool lead to the database. The benchmark uses them as the application.
	URL  string
	Pool *pgxpool.Pool
	// AwakeKey1 and AwakeKey2 are the two parts of the key of the awake lock, the
	// advisory lock that a worker holds while it needs no notifications.
	AwakeKey1, AwakeKey2 int32
	// Work runs a worker until its context ends.
	Work func(ctx context.Context) error
}

// Server holds the version and the durability settings of a Postgres server.
type Server struct {
	Version string `json:"version"`
	Fsync   string `json:"fsync"`
	// SynchronousCommit is the value of synchronous_commit.
	SynchronousCommit string `json:"synchronous_commit"`
}

// String returns the version and the durability settings for reports.
func (s Server) String() string {
	return fmt.Sprintf("Postgres %s, fsync %s, synchronous_commit %s", s.Version, s.Fsync, s.SynchronousCommit)
}

// ReadServer reads the version and the durability settings.
func ReadServer(ctx context.Context, pool *pgxpool.Pool) (Server, error) {
	var server Server
	err := pool.QueryRow(ctx,
		"SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')").
		Scan(&server.Version, &server.Fsync, &server.SynchronousCommit)
	return server, problem.Doing(err, "read settings of the server")
}

// CreateDatabase creates a database for one benchmark. It returns the URL of the
// database, and a function that drops the database even if sessions are connected.
func (g *Cluster) CreateDatabase(ctx context.Context) (databaseURL string, drop func() error, err error) {
	_, databaseURL, drop, err = g.create(ctx, "")
	return databaseURL, drop, err
}

// create creates a database as a copy of the template. No session may be connected to the
// template. If template is empty, it uses template0, because other roles may have created
// objects in template1.
func (g *Cluster) create(ctx context.Context, template string) (
	name, databaseURL string, drop func() error, err error,
) {
	name = "sexton_bench_" + strings.ToLower(rand.Text())
	if databaseURL, err = withDatabase(g.AdminURL, name); err != nil {
		return "", "", nil, err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	drop = func() error {
		// The context is not canceled with ctx, so that the database is dropped even if
		// the benchmark was interrupted.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		_, err := g.Admin.Exec(ctx, "DROP DATABASE IF EXISTS "+quoted+" WITH (FORCE)")
		return problem.Doing(err, "drop database %s", name)
	}
	statement := "CREATE DATABASE " + quoted + " TEMPLATE " + pgx.Identifier{cmp.Or(template, "template0")}.Sanitize()
	if _, err := g.Admin.Exec(ctx, statement); err != nil {
		// Drop the database after an error, because an interrupted CREATE DATABASE may
		// have created it.
		return "", "", nil, errors.Join(fmt.Errorf("create database %s: %w", name, err), drop())
	}
	return name, databaseURL, drop, nil
}

// withDatabase replaces the name of the database in a URL or in a keyword=value string.
func withDatabase(connection, name string) (string, error) {
	if !strings.HasPrefix(connection, "postgres://") && !strings.HasPrefix(connection, "postgresql://") {
		// The appended dbname takes precedence: if a keyword occurs twice, its last value
		// applies.
		return connection + " dbname=" + name, nil
	}
	u, err := url.Parse(connection)
	if err != nil {
		// The error of url.Parse is not returned, because it contains the password.
		return "", errors.New("connection string cannot be parsed")
	}
	u.Path, u.RawPath = "/"+name, ""
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	return u.String(), nil
}

// withWorker starts a worker, warms it up, calls do, and stops the worker.
func (s *Site) withWorker(ctx context.Context, do func(ctx context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- s.Work(running)
		// If the worker fails, the measurement must end.
		stop()
	}()
	err := s.warmUp(running)
	if err == nil {
		err = do(running)
	}
	stop()
	if failed := <-ended; failed != nil && ctx.Err() == nil {
		return fmt.Errorf("run worker: %w", failed)
	}
	return err
}

// warmUp deletes parents and waits for their children, so that the worker has prepared
// its statements.
func (s *Site) warmUp(ctx context.Context) error {
	watcher, closeWatcher, err := connect(ctx, s.URL)
	if err != nil {
		return err
	}
	defer closeWatcher()
	for id := int64(-1); id >= -20; id-- {
		const insert = "WITH parent AS (INSERT INTO parents (id) VALUES ($1)) INSERT INTO children (parent_id) VALUES ($1)"
		if _, err := watcher.Exec(ctx, insert, id); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		if _, err := watcher.Exec(ctx, "DELETE FROM parents WHERE id = $1", id); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		if err := awaitDeletion(ctx, watcher, id); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	return nil
}

// awaitDeletion waits until the children and the tombstone of a parent are deleted. It
// polls, because a trigger that notifies would change the measurement.
func awaitDeletion(ctx context.Context, watcher *pgx.Conn, parent int64) error {
	return awaitTrue(ctx, watcher, `
SELECT NOT EXISTS (SELECT FROM children WHERE parent_id = $1)
   AND NOT EXISTS (SELECT FROM `+tombstones+` WHERE fully_qualified_table_name = 'public.parents' AND primary_key_value = $1)`, parent)
}

// awaitTrue polls a query until it returns true.
func awaitTrue(ctx context.Context, watcher *pgx.Conn, sql string, args ...any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, drainTimeout,
		fmt.Errorf("the children or the tombstone of a deleted parent still exist after %s", drainTimeout))
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		var done bool
		if err := watcher.QueryRow(ctx, sql, args...).Scan(&done); err != nil {
			return fmt.Errorf("query children: %w", causeOf(ctx, err))
		}
		if done {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// causeOf returns the cause of the end of ctx, or err if ctx has not ended.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// exec runs statements without arguments. what names the purpose in errors.
func (s *Site) exec(ctx context.Context, what, statements string) error {
	_, err := s.Pool.Exec(ctx, statements)
	return problem.Doing(err, "%s", what)
}
