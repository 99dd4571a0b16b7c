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
	// drainTimeout is how long the deletion of children may take before the benchmark
	// fails.
	drainTimeout = 2 * time.Minute
	// look is the interval at which the benchmark checks for deleted children. It is the
	// error of a latency.
	look = 500 * time.Microsecond
	// removeTimeout limits the removal of the benchmark's database.
	removeTimeout = time.Minute
)

// Site is a database of a cluster with Tables and an installation of Sexton.
type Site struct {
	*Cluster

	// URL and Pool connect to the database as the application.
	URL  string
	Pool *pgxpool.Pool
	// AwakeKey1 and AwakeKey2 are the key of the worker's awake lock.
	AwakeKey1, AwakeKey2 int32
	// Work runs a worker until its context ends.
	Work func(ctx context.Context) error
}

// Server describes the server of the measurement.
type Server struct {
	Version string `json:"version"`
	Fsync   string `json:"fsync"`
	// SynchronousCommit is the setting synchronous_commit.
	SynchronousCommit string `json:"synchronous_commit"`
}

// String returns the server's version and its durability settings.
func (s Server) String() string {
	return fmt.Sprintf("Postgres %s, fsync %s, synchronous_commit %s", s.Version, s.Fsync, s.SynchronousCommit)
}

// ReadServer reads the settings of the server of a pool.
func ReadServer(ctx context.Context, pool *pgxpool.Pool) (Server, error) {
	var server Server
	err := pool.QueryRow(ctx,
		"SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')").
		Scan(&server.Version, &server.Fsync, &server.SynchronousCommit)
	return server, problem.Doing(err, "read settings of the server")
}

// CreateDatabase creates a database for one benchmark. It returns its URL, and a function
// that drops it even if sessions are connected.
func (g *Cluster) CreateDatabase(ctx context.Context) (own string, drop func() error, err error) {
	_, own, drop, err = g.create(ctx, "")
	return own, drop, err
}

// create creates a copy of the template, to which no session may be connected. Without a
// template it uses template0, because any role may have changed template1.
func (g *Cluster) create(ctx context.Context, template string) (name, own string, drop func() error, err error) {
	name = "sexton_bench_" + strings.ToLower(rand.Text())
	if own, err = withDatabase(g.AdminURL, name); err != nil {
		return "", "", nil, err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	drop = func() error {
		// An interrupted benchmark must also drop the database.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		_, err := g.Admin.Exec(ctx, "DROP DATABASE IF EXISTS "+quoted+" WITH (FORCE)")
		return problem.Doing(err, "drop database %s", name)
	}
	statement := "CREATE DATABASE " + quoted + " TEMPLATE " + pgx.Identifier{cmp.Or(template, "template0")}.Sanitize()
	if _, err := g.Admin.Exec(ctx, statement); err != nil {
		// After an interruption the database may exist.
		return "", "", nil, errors.Join(fmt.Errorf("create database %s: %w", name, err), drop())
	}
	return name, own, drop, nil
}

// withDatabase replaces the database in a connection string of either form.
func withDatabase(connection, name string) (string, error) {
	if !strings.HasPrefix(connection, "postgres://") && !strings.HasPrefix(connection, "postgresql://") {
		return connection + " dbname=" + name, nil // The last one counts.
	}
	u, err := url.Parse(connection)
	if err != nil {
		return "", errors.New("connection string cannot be parsed") // url.Parse would show the password.
	}
	u.Path, u.RawPath = "/"+name, ""
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	return u.String(), nil
}

// withWorker calls do while a worker runs that has already worked, and then stops the
// worker.
func (s *Site) withWorker(ctx context.Context, do func(ctx context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- s.Work(running)
		stop() // The measurement needs the worker.
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

// warmUp deletes parents until the worker has prepared its statements.
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
		if err := gone(ctx, watcher, id); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	return nil
}

// gone returns when the children and the tombstone of a parent are deleted. It polls,
// because a trigger that notifies would be part of the measurement.
func gone(ctx context.Context, watcher *pgx.Conn, parent int64) error {
	return drained(ctx, watcher, `
SELECT NOT EXISTS (SELECT FROM children WHERE parent_id = $1)
   AND NOT EXISTS (SELECT FROM `+tombstones+` WHERE fully_qualified_table_name = 'public.parents' AND primary_key_value = $1)`, parent)
}

// drained returns when a query returns true.
func drained(ctx context.Context, watcher *pgx.Conn, sql string, args ...any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, drainTimeout,
		fmt.Errorf("the children or the tombstone of a deleted parent still exist after %s", drainTimeout))
	defer cancel()
	tick := time.NewTicker(look)
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

// causeOf returns the reason why the context ended if that caused the error.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// exec runs statements without arguments in one session of the site's pool.
func (s *Site) exec(ctx context.Context, what, statements string) error {
	_, err := s.Pool.Exec(ctx, statements)
	return problem.Doing(err, "%s", what)
}
