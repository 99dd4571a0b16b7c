package database

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Database holds the connections of one configured database.
type Database struct {
	// Name is the name of the database in the configuration.
	Name  string
	Pool  *pgxpool.Pool
	Names pgcatalog.Names
	// Direct holds the settings of connections past a transaction pooler, for work that
	// needs its own session. Sessions is a pool of connections past the pooler. Without a
	// direct URL, Sessions is Pool.
	Direct   *pgx.ConnConfig
	Sessions *pgxpool.Pool

	// pooled is true if Pool connects through a transaction pooler.
	pooled bool
	async  *pgxpool.Pool
}

// Close closes all connections.
func (d Database) Close() {
	d.Pool.Close()
	d.Sessions.Close()
	d.Async().Close()
}

// Queries returns the generated queries for the database's schemas, on its pool.
func (d Database) Queries() *dbsqlc.Queries { return d.Names.Queries(d.Pool) }

// Pooled reports whether Pool connects through a transaction pooler, so that no
// notification arrives.
func (d Database) Pooled() bool { return d.pooled }

const (
	connectTimeout = 5 * time.Second
	// idleTime is the time after which an unused connection is closed. It replaces
	// pgxIdleTime, the default of pgx, which would keep the connections of one busy
	// moment for half an hour.
	idleTime    = 8 * time.Second
	pgxIdleTime = 30 * time.Minute
	// pingAfter is the idle time after which a connection is checked before it is used,
	// as in pgx.
	pingAfter = time.Second
)

// These constants are client encodings. A database with the encoding SQL_ASCII
// (unknownEncoding) stores any bytes without conversion.
const (
	utf8            = "UTF8"
	unknownEncoding = "SQL_ASCII"
)

// Option changes the settings of a pool. Options are not applied to connections through a
// transaction pooler, because it refuses start-up parameters.
type Option func(settings *pgx.ConnConfig)

// LockTimeout returns an option that sets lock_timeout, unless the URL sets it.
func LockTimeout(wait time.Duration) Option {
	return func(settings *pgx.ConnConfig) {
		const key = "lock_timeout"
		if _, given := settings.RuntimeParams[key]; !given {
			settings.RuntimeParams[key] = strconv.FormatInt(wait.Milliseconds(), 10)
		}
	}
}

// Open connects with a pool of at most maxConns connections and checks that the server
// answers. It also checks the direct URL, which is used for Database.Direct. If the
// direct URL is empty, url is used instead. The error is a *SettingsError, an
// *UnreachableError, or the error of ctx. If the error is an *UnreachableError, the
// returned database is open: its pool connects when the server answers.
func Open(ctx context.Context, name, url, direct string, names pgcatalog.Names, maxConns int32,
	options ...Option,
) (Database, error) {
	db, err := openAs(ctx, utf8, name, url, direct, names, maxConns, options...)
	if err != nil {
		return db, err
	}
	// Texts in a SQL_ASCII database may have any encoding. With client_encoding UTF8 the
	// server would refuse to return a text that is not UTF-8.
	var encoding string
	err = db.Pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		encoding = conn.Conn().PgConn().ParameterStatus("server_encoding")
		return nil
	})
	if err == nil && encoding == unknownEncoding {
		db.Close()
		return openAs(ctx, unknownEncoding, name, url, direct, names, maxConns, options...)
	}
	return db, err //nolint:wrapcheck // It is ctx's error, because a connection is idle.
}

// openAs opens the database with the given client_encoding.
func openAs(
	ctx context.Context, encoding, name, url, direct string, names pgcatalog.Names, maxConns int32, options ...Option,
) (Database, error) {
	settings, err := parse(name, keyURL, url, encoding)
	if err != nil {
		return Database{}, err
	}
	settings.MaxConns = maxConns
	// The statement cache must be large: each child table has its own statements, and
	// GitLab has more than 200 child tables.
	settings.ConnConfig.StatementCacheCapacity = 1024
	// The search_path of the URL is for the application's triggers.
	db := Database{Name: name, pooled: pooled(settings.ConnConfig, direct)}
	names.Path = cmp.Or(names.Path, pin(settings.ConnConfig, db.pooled))
	for _, option := range options {
		if !db.pooled {
			option(settings.ConnConfig)
		}
	}
	db.Names, db.Direct = names, settings.ConnConfig.Copy()
	directSettings := settings
	if direct != "" {
		if directSettings, err = parse(name, keyListen, direct, encoding); err != nil {
			return Database{}, err
		}
		pin(directSettings.ConnConfig, false)
		directSettings.MaxConns, db.Direct = maxConns, directSettings.ConnConfig.Copy()
	}
	if db.Pool, err = pgxpool.NewWithConfig(ctx, settings); err != nil {
		return Database{}, fmt.Errorf("create pool for database %s: %w", name, err)
	}
	db.Sessions = db.Pool
	if direct != "" {
		if db.Sessions, err = pgxpool.NewWithConfig(ctx, directSettings); err != nil {
			db.Pool.Close()
			return Database{}, fmt.Errorf("create pool for database %s: %w", name, err)
		}
	}
	err = db.Ping(ctx)
	if err == nil && direct != "" {
		err = db.tryDirect(ctx)
	}
	if err != nil && ctx.Err() != nil {
		db.Close()
		return Database{}, ctx.Err()
	}
	return db, err
}

// Ping checks that the server answers. The error is an *UnreachableError, or the error of
// ctx.
func (d Database) Ping(ctx context.Context) error {
	err := d.Pool.Ping(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return d.Unreachable(err)
}

// WriteRefusal returns the reason why the server accepts no writes, or "". After a
// failover the old primary may continue as a standby, and hosted servers become read-only
// if their disk is full.
func (d Database) WriteRefusal(ctx context.Context) (reason string, err error) {
	const sql = `SELECT CASE
		WHEN pg_catalog.pg_is_in_recovery() THEN 'its server is a standby (in recovery)'
		WHEN pg_catalog.current_setting('transaction_read_only') = 'on' THEN 'default_transaction_read_only is on'
		ELSE '' END`
	err = d.Pool.QueryRow(ctx, sql).Scan(&reason)
	return reason, problem.Doing(err, "check whether database %s accepts writes", d.Name)
}

// parse parses a connection string, including its pool settings.
func parse(name, key, url, encoding string) (*pgxpool.Config, error) {
	settings, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, &SettingsError{Database: name, Key: key}
	}
	if settings.MaxConnIdleTime == pgxIdleTime {
		settings.MaxConnIdleTime, settings.HealthCheckPeriod = idleTime, idleTime/4
	}
	if settings.ConnConfig.ConnectTimeout == 0 {
		settings.ConnConfig.ConnectTimeout = connectTimeout
	}
	dialer := newDialer(settings.ConnConfig.ConnectTimeout)
	settings.ConnConfig.DialFunc, settings.AfterConnect = dialer.dial, dialer.inspect
	settings.ConnConfig.Tracer = Tracer()
	settings.ShouldPing = func(_ context.Context, idle pgxpool.ShouldPingParams) bool {
		return idle.IdleDuration > pingAfter && !quiet(idle.Conn.PgConn().Conn())
	}
	// The default of the database or the role may be another encoding.
	settings.ConnConfig.RuntimeParams["client_encoding"] = encoding
	// Workers recognize each other by the prefix of the name, for example among lock
	// holders.
	if name := settings.ConnConfig.RuntimeParams["application_name"]; !strings.HasPrefix(name, "sexton") {
		settings.ConnConfig.RuntimeParams["application_name"] = strings.TrimSpace("sexton " + name)
	}
	return settings, nil
}

// tryDirect connects once with the direct URL, so that Open detects an error in it.
func (d Database) tryDirect(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, d.Direct)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return unreachable(d.Name, keyListen, d.Direct.Config, err)
	}
	// The connection was only a test, so an error on closing it is ignored.
	_ = conn.Close(ctx)
	return nil
}

// PinPath is the SQL expression that sets the search_path of Sexton's own statements
// until the end of the transaction. Sessions start with this path, except through a
// transaction pooler if the role does not have the setting.
const PinPath = "pg_catalog.set_config('search_path', '" + OwnPath + "', true)"

// GenericPlan is the SQL expression that makes later statements of the transaction use
// the cached generic plan, and sets the path of PinPath. Otherwise Postgres plans a query
// with array parameters at each execution, which takes ten times as long as running it.
// Statements of a pipeline are one transaction.
const GenericPlan = "pg_catalog.concat_ws(' ', " + PinPath +
	", pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true))"

// Pinned runs a query with the search_path of Sexton's own statements, and returns its
// row.
func Pinned(ctx context.Context, on Sender, sql string, args ...any) pgx.Row {
	return After(ctx, on, PinPath, sql, args...)
}

// Sender sends several statements in one round trip, a pipeline.
type Sender interface {
	SendBatch(ctx context.Context, pipeline *pgx.Batch) pgx.BatchResults
}

// After evaluates an SQL expression, runs a query and returns the row of the query, in
// one round trip.
func After(ctx context.Context, on Sender, expression, sql string, args ...any) pgx.Row {
	pipeline := &pgx.Batch{}
	pipeline.Queue("SELECT " + expression)
	pipeline.Queue(sql, args...)
	results := on.SendBatch(ctx, pipeline)
	_, err := results.Exec()
	return lastRow{results, err}
}

// lastRow is the last result of a pipeline. Scan closes the pipeline.
type lastRow struct {
	results pgx.BatchResults
	err     error
}

func (r lastRow) Scan(into ...any) error {
	err := r.err
	if err == nil {
		err = r.results.QueryRow().Scan(into...)
	}
	return cmp.Or(err, r.results.Close())
}

// Beginner is a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Write runs do in a transaction that may run code of other roles, such as triggers and
// checks of domains. After the commit it resets the session, because that code may have
// changed session settings, such as search_path or default_transaction_read_only.
func Write(ctx context.Context, on Beginner, do func(tx pgx.Tx) error) error {
	if pool, ok := on.(*pgxpool.Pool); ok {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err //nolint:wrapcheck // like an error of BeginTx
		}
		defer conn.Release()
		on = conn.Conn()
	}
	err := pgx.BeginTxFunc(ctx, on, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, do)
	if conn, ok := on.(*pgx.Conn); ok && err == nil { // The rollback also reverts changed settings.
		if _, failed := conn.Exec(ctx, "RESET ALL"); failed != nil {
			// The transaction is committed, so an error is ignored. The pool replaces the
			// closed connection.
			_ = conn.Close(ctx)
		}
	}
	return err //nolint:wrapcheck // The error of do, or of the server.
}

// OwnPath is the search_path of direct sessions and of Sexton's own statements. With this
// path, unqualified names never resolve to objects of other roles.
const OwnPath = "pg_catalog, pg_temp"

const pathKey = "search_path"

var pathOption = regexp.MustCompile(`(?:^|\s)(?:-c\s*|--)search_path=((?:\\.|[^\s\\])+)`)

// pooled reports whether the settings mean that a URL connects through a transaction
// pooler: there is a direct URL, or the query mode uses no prepared statements, which
// need a session of their own.
func pooled(settings *pgx.ConnConfig, direct string) bool {
	return direct != "" || settings.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement
}

// pin sets the search_path to OwnPath unless the connection is pooled, and returns the
// path that the URL sets.
func pin(settings *pgx.ConnConfig, isPooled bool) (urlPath string) {
	if option := pathOption.FindStringSubmatch(settings.RuntimeParams["options"]); option != nil {
		urlPath = regexp.MustCompile(`\\(.)`).ReplaceAllString(option[1], "$1")
	}
	if path := settings.RuntimeParams[pathKey]; path != "" {
		urlPath = path
	}
	if isPooled {
		delete(settings.RuntimeParams, pathKey)
	} else {
		settings.RuntimeParams[pathKey] = OwnPath
	}
	return strings.TrimSpace(urlPath)
}
