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
	// drainTimeout is how long children may take to go before the worker is taken for
	// broken.
	drainTimeout = 2 * time.Minute
	// look is the pause between two looks whether children are gone, and with it the
	// error of a latency.
	look = 500 * time.Microsecond
	// removeTimeout bounds the removal of the benchmark's database.
	removeTimeout = time.Minute
)

// Site is a database of a cluster with Tables and all that Sexton installs.
type Site struct {
	*Cluster

	// URL and Pool lead to the database, as the application connects.
	URL  string
	Pool *pgxpool.Pool
	// AwakeKey1 and AwakeKey2 are the lock that a worker holds while it is awake.
	AwakeKey1, AwakeKey2 int32
	// Work runs a worker until its context ends.
	Work func(ctx context.Context) error
}

// Server says on what the figures were taken.
type Server struct {
	Version string `json:"version"`
	Fsync   string `json:"fsync"`
	// SynchronousCommit is the setting of the same name.
	SynchronousCommit string `json:"synchronous_commit"`
}

// String names the server and what its commits wait for.
func (s Server) String() string {
	return fmt.Sprintf("Postgres %s, fsync %s, synchronous_commit %s", s.Version, s.Fsync, s.SynchronousCommit)
}

// ReadServer reads the settings of the server to which a pool leads.
func ReadServer(ctx context.Context, pool *pgxpool.Pool) (Server, error) {
	var server Server
	err := pool.QueryRow(ctx,
		"SELECT current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit')").
		Scan(&server.Version, &server.Fsync, &server.SynchronousCommit)
	return server, problem.Doing(err, "read settings of the server")
}

// CreateDatabase makes a database for one benchmark. It returns its URL, and a function
// that drops it, even if sessions are connected.
func (g *Cluster) CreateDatabase(ctx context.Context) (own string, drop func() error, err error) {
	_, own, drop, err = g.create(ctx, "")
	return own, drop, err
}

// create is CreateDatabase for a copy of the template, to which no session may be
// connected. Without one it has nothing but Postgres's own: in template1 any role may
// have left what a benchmark would call.
func (g *Cluster) create(ctx context.Context, template string) (name, own string, drop func() error, err error) {
	name = "sexton_bench_" + strings.ToLower(rand.Text())
	if own, err = withDatabase(g.AdminURL, name); err != nil {
		return "", "", nil, err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	drop = func() error {
		// An interrupted benchmark cleans up as well.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		_, err := g.Admin.Exec(ctx, "DROP DATABASE IF EXISTS "+quoted+" WITH (FORCE)")
		return problem.Doing(err, "drop database %s", name)
	}
	statement := "CREATE DATABASE " + quoted + " TEMPLATE " + pgx.Identifier{cmp.Or(template, "template0")}.Sanitize()
	if _, err := g.Admin.Exec(ctx, statement); err != nil {
		// It may be there where the interruption came in between.
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

// withWorker does something beside a running worker that has worked already, and stops
// the worker.
func (s *Site) withWorker(ctx context.Context, do func(ctx context.Context) error) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- s.Work(running)
		stop() // Nothing is measured without it.
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

// warmUp deletes parents until the worker has shown that it is up, with prepared
// statements and all.
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

// gone returns once neither children nor the tombstone of a parent are there. It looks
// rather than listens, as a trigger that tells of the end would be part of what is
// measured.
func gone(ctx context.Context, watcher *pgx.Conn, parent int64) error {
	return drained(ctx, watcher, `
SELECT NOT EXISTS (SELECT FROM children WHERE parent_id = $1)
   AND NOT EXISTS (SELECT FROM `+tombstones+` WHERE fully_qualified_table_name = 'public.parents' AND primary_key_value = $1)`, parent)
}

// drained returns once a query says so.
func drained(ctx context.Context, watcher *pgx.Conn, sql string, args ...any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, drainTimeout,
		fmt.Errorf("what a deleted parent leaves behind is there after %s", drainTimeout))
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		var done bool
		if err := watcher.QueryRow(ctx, sql, args...).Scan(&done); err != nil {
			return fmt.Errorf("look for children: %w", causeOf(ctx, err))
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

// causeOf prefers the reason why the context ended to the error that followed from it.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// exec runs statements without arguments on the site's pool, all in one session.
func (s *Site) exec(ctx context.Context, what, statements string) error {
	_, err := s.Pool.Exec(ctx, statements)
	return problem.Doing(err, "%s", what)
}
