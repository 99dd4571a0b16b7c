package migrate

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

//go:embed queries
var sqlFiles embed.FS

// sqlText is one of these files. As parts of the program they are never missing.
func sqlText(name string) string {
	text, _ := sqlFiles.ReadFile("queries/" + name + ".sql")
	return string(text)
}

// migrateLock keeps two migrations of one database apart: "sexmigr" in ASCII. It does not depend on the
// schema, because two installations may share the tracked schema.
const migrateLock int64 = 0x7365786d696772

// settled makes a session independent of the role's and the database's settings: names mean what they
// say, and a lock that is not to be had ends the migration, not the application behind it.
const settled = `
SET search_path = pg_catalog, pg_temp;
SET standard_conforming_strings = on;
SET quote_all_identifiers = off;
SET default_transaction_isolation = 'read committed';
SET client_min_messages = warning;
SET statement_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET lock_timeout = '10s';
`

// session is a locked database with connections for those who migrate it.
type session struct {
	db       Database
	log      *slog.Logger
	pool     *pgxpool.Pool
	sqlDB    *sql.DB
	replacer *strings.Replacer
}

// withSession runs do with the database locked against other migrations.
func withSession(ctx context.Context, log *slog.Logger, db Database, do func(*session) error) (err error) {
	pool, err := db.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	unlock, err := lock(ctx, pool)
	if err != nil {
		return err
	}
	defer unlock()
	sqlDB := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, sqlDB.Close()) }()
	return do(&session{db: db, log: log, pool: pool, sqlDB: sqlDB, replacer: db.replacer()})
}

// open connects to the database. Four connections: the lock, goose, River, triggers.
func (db Database) open(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, fmt.Errorf("configure connections: %w", err)
	}
	config.ConnConfig = db.Conn.Copy()
	config.MaxConns = 4
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, settled)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return pool, nil
}

// lock waits for the lock for as long as ctx lasts.
func lock(ctx context.Context, pool *pgxpool.Pool) (unlock func(), err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = 0"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "SELECT pg_catalog.pg_advisory_lock($1)", migrateLock)
		return err
	})
	if err != nil {
		conn.Release()
		return nil, fmt.Errorf("wait for other migrations: %w", err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		// The session ends with the pool, and the lock with the session.
		_ = conn.Hijack().Close(ctx)
	}, nil
}

// replacer puts the configured names into SQL of package sqlfiles. The first pattern is for names inside
// literals, the third for the marks around function bodies, which a name may contain.
func (db Database) replacer() *strings.Replacer {
	tag := "$sexton$"
	for strings.Contains(db.TrackedSchema, tag) {
		tag = tag[:len(tag)-1] + "_$"
	}
	tracked := pgx.Identifier{db.TrackedSchema}.Sanitize()
	return strings.NewReplacer(
		`'"public".`, "'"+strings.ReplaceAll(tracked, "'", "''")+".",
		`"public"`, tracked,
		`$sexton$`, tag,
		`"sexton"`, pgx.Identifier{db.JobsSchema}.Sanitize(),
	)
}
