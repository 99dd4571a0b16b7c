// Package database connects to the configured databases and says in one sentence why it cannot.
package database

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

// Database is one connected database.
type Database struct {
	// Name is the configured one.
	Name  string
	Pool  *pgxpool.Pool
	Names pgschema.Names
	// Direct connects past a transaction pooler, for what needs a session of its own.
	Direct *pgx.ConnConfig
}

// Queries returns the generated queries for the database's schemas, on its pool.
func (d Database) Queries() *dbsqlc.Queries { return d.Names.Queries(d.Pool) }

// UnreachableError says that a database cannot be reached or lets nobody in.
type UnreachableError struct {
	Database string
	// Reason and Fix are for people; neither holds a password.
	Reason string
	Fix    string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("database %s cannot be reached: %s (%s)", e.Database, e.Reason, e.Fix)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

const connectTimeout = 5 * time.Second

// Open connects with a pool of at most maxConns connections and checks that the server answers. The direct
// URL is for Database.Direct; empty means url. An error is an *UnreachableError unless ctx ended.
func Open(ctx context.Context, name, url, direct string, names pgschema.Names, maxConns int32) (Database, error) {
	settings, err := pgxpool.ParseConfig(url)
	if err != nil {
		return Database{}, unparsable(name, "url")
	}
	directly, err := pgx.ParseConfig(cmp.Or(direct, url))
	if err != nil {
		return Database{}, unparsable(name, "listen_url")
	}
	settings.MaxConns = maxConns
	for _, conn := range []*pgx.ConnConfig{settings.ConnConfig, directly} {
		if conn.ConnectTimeout == 0 {
			conn.ConnectTimeout = connectTimeout
		}
		if conn.RuntimeParams["application_name"] == "" {
			conn.RuntimeParams["application_name"] = "sexton"
		}
	}
	// Each child table has statements of its own, and GitLab has more than two hundred of them.
	settings.ConnConfig.StatementCacheCapacity = 1024
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return Database{}, fmt.Errorf("make pool for database %s: %w", name, err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		if ctx.Err() != nil {
			return Database{}, ctx.Err()
		}
		return Database{}, unreachable(name, settings.ConnConfig.Config, err)
	}
	return Database{Name: name, Pool: pool, Names: names, Direct: directly}, nil
}

// unparsable leaves the parser's error out: its text can quote the URL, password included.
func unparsable(name, key string) error {
	return &UnreachableError{Database: name, Reason: "its " + key + " cannot be parsed", Fix: "see databases." + name + "." + key}
}

func unreachable(name string, settings pgconn.Config, err error) error {
	e := &UnreachableError{Database: name, Err: err}
	key := "databases." + name + ".url"
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		e.Reason = fmt.Sprintf("no server answers at %s port %d", settings.Host, settings.Port)
		e.Fix = "start it, or correct host and port in " + key
		return e
	}
	e.Reason = pgErr.Message
	switch pgErr.Code {
	case "3D000":
		e.Fix = fmt.Sprintf("create it, or correct the database name in %s", key)
	case "28P01", "28000":
		e.Fix = fmt.Sprintf("correct user and password in %s, or the server's pg_hba.conf", key)
	case "42501":
		e.Fix = fmt.Sprintf("GRANT CONNECT on the database to user %s", settings.User)
	case "53300":
		e.Fix = "raise the server's max_connections, or end other sessions"
	case "57P03":
		e.Fix = "wait until the server has started or recovered"
	default:
		e.Fix = "see " + key
	}
	return e
}
