package migrate

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/problem"
	"sexton/triggers"
)

// relation is a table of the tracked schema.
type relation struct {
	// kind is pg_class.relkind; empty where there is none.
	kind    string
	columns []string
	// integers are those of the columns that are of one of Postgres's own integer types.
	integers []string
}

func (r relation) there() bool { return r.kind != "" }

// lacks returns those of the columns that the relation does not have.
func (r relation) lacks(columns []string) []string {
	return slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return slices.Contains(r.columns, c) })
}

// object is an entry of the registry.
type object struct {
	kind, identity string
}

// identity is the name of an object in the registry, as the SQL files write it.
func identity(schema, name string) string { return pgx.Identifier{schema}.Sanitize() + "." + name }

// inspection is one consistent look at the content of a database; it changes nothing.
type inspection struct {
	role     string
	database string
	// server is its version, as it writes it.
	server string

	hasSchema, mayCreateSchema, mayCreateInSchema bool
	hasTracked, mayCreateInTracked                bool

	// relations are the names taken in Sexton's schema, tracked the tables of the tracked schema that components work with.
	relations []string
	tracked   map[string]relation
	// registry reports that Sexton's registry is there; objects maps its entries to their component.
	registry bool
	objects  map[object]string
	// versions has the installed version per component; absent is 0.
	versions map[string]int64
}

// inspect looks over the connections of a session or of its own.
func (db Database) inspect(ctx context.Context, on beginner) (inspection, error) {
	look := inspection{objects: map[object]string{}, versions: map[string]int64{}, tracked: map[string]relation{}}
	err := pgx.BeginTxFunc(ctx, on, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog, pg_temp"); err != nil {
			return err
		}
		look.server = tx.Conn().PgConn().ParameterStatus("server_version")
		err := tx.QueryRow(ctx, sqlText("schemas"), db.JobsSchema, db.TrackedSchema).Scan(&look.role, &look.database,
			&look.hasSchema, &look.mayCreateSchema, &look.mayCreateInSchema, &look.hasTracked, &look.mayCreateInTracked, &look.relations)
		if err != nil {
			return fmt.Errorf("look up schemas: %w", err)
		}
		rows, _ := tx.Query(ctx, sqlText("tracked_tables"), db.TrackedSchema, trackedTables())
		var name string
		var found relation
		if _, err := pgx.ForEachRow(rows, []any{&name, &found.kind, &found.columns, &found.integers}, func() error {
			look.tracked[name], found = found, relation{}
			return nil
		}); err != nil {
			return fmt.Errorf("look up tables of the application: %w", err)
		}
		if err := db.readRegistry(ctx, tx, &look); err != nil {
			return db.explain(look, err, printedGrants)
		}
		return db.explain(look, db.readVersions(ctx, tx, &look), printedGrants)
	})
	return look, err
}

// registry is the name of the list of Sexton's objects, register the statement of an entry's kind, identity and component.
func (db Database) registry() string { return pgx.Identifier{db.JobsSchema, "objects"}.Sanitize() }

func (db Database) register() string {
	return "INSERT INTO " + db.registry() + " (kind, identity, component) VALUES ($1, $2, $3) ON CONFLICT (kind, identity) DO NOTHING"
}

// readRegistry reads the list of Sexton's objects. A table of that name that does not list itself is
// another program's.
func (db Database) readRegistry(ctx context.Context, tx pgx.Tx, look *inspection) error {
	if !slices.Contains(look.relations, "objects") {
		return nil
	}
	var columns int
	err := tx.QueryRow(ctx, sqlText("registry_columns"), db.JobsSchema).Scan(&columns)
	if err != nil || columns != 3 {
		return err
	}
	rows, _ := tx.Query(ctx, "SELECT kind, identity, component FROM "+db.registry())
	objects := map[object]string{}
	var o object
	var component string
	_, err = pgx.ForEachRow(rows, []any{&o.kind, &o.identity, &component}, func() error {
		objects[o] = component
		return nil
	})
	if err != nil {
		return fmt.Errorf("read list of objects: %w", err)
	}
	if _, listsItself := objects[object{"table", identity(db.JobsSchema, "objects")}]; listsItself {
		look.registry, look.objects = true, objects
	}
	return nil
}

func (db Database) readVersions(ctx context.Context, tx pgx.Tx, look *inspection) error {
	for _, c := range allComponents() {
		table, query := versionTable(c.name), "SELECT coalesce(pg_catalog.max(version), 0) FROM %s"
		if c.name == River {
			// Before its version 5 River's table has no column line.
			table = "river_migration"
			query = "SELECT coalesce(pg_catalog.max(version), 0) FROM %s AS m WHERE coalesce(pg_catalog.to_jsonb(m) ->> 'line', 'main') = 'main'"
		}
		if !slices.Contains(look.relations, table) || !look.installed(db, c) {
			continue
		}
		var version int64
		if err := tx.QueryRow(ctx, fmt.Sprintf(query, pgx.Identifier{db.JobsSchema, table}.Sanitize())).Scan(&version); err != nil {
			return fmt.Errorf("read version of %s: %w", c.name, err)
		}
		look.versions[c.name] = version
	}
	return nil
}

func (i inspection) owns(kind, identity string) bool {
	_, ours := i.objects[object{kind, identity}]
	return ours
}

// ownsRelation reports whether a table or view is Sexton's.
func (i inspection) ownsRelation(identity string) bool {
	return i.owns("table", identity) || i.owns("view", identity)
}

// installed reports whether Sexton began to install the component here.
func (i inspection) installed(db Database, c component) bool {
	if c.name == River {
		return i.owns("river", db.JobsSchema)
	}
	return i.owns("table", identity(db.JobsSchema, versionTable(c.name)))
}

// What to run where the role lacks a right: to look, and to change what another role owns.
const (
	printedGrants = "the statements that `sexton migrate up --print-grants` prints"
	asOwner       = "the command again as the role that ran `sexton migrate up`"
)

// explain turns a missing privilege into what to do about it.
func (db Database) explain(look inspection, err error, grant string) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != insufficientPrivilege {
		return err
	}
	return &PrivilegeError{Database: db.Name, Role: look.role, Missing: pgErr.Message, Grant: grant}
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// list reads all rows of a query; what says which for the error.
func list[T any](ctx context.Context, on querier, what string, read pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := on.Query(ctx, sql, args...)
	found, err := pgx.CollectRows(rows, read)
	return found, problem.Doing(err, "look up %s", what)
}

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
	replacer *strings.Replacer
}

// withSession runs do with the database locked against other migrations.
func withSession(ctx context.Context, log *slog.Logger, db Database, do func(*session) error) error {
	pool, err := db.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	unlock, err := lock(ctx, log.With(slog.String("database", db.Name)), pool)
	if err != nil {
		return err
	}
	defer unlock()
	return do(&session{db: db, log: log, pool: pool, replacer: db.replacer()})
}

// open connects to the database. Four connections: the lock, migrations, River, triggers.
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
	return pool, problem.Doing(err, "connect")
}

// lock waits for the lock for as long as ctx lasts, and says for whom.
func lock(ctx context.Context, log *slog.Logger, pool *pgxpool.Pool) (unlock func(), err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	err = triggers.AwaitLock(ctx, conn.Conn(), migrateLock, waits(ctx, log, "migrations"))
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

// waits writes a line that says for whom a command waits.
func waits(ctx context.Context, log *slog.Logger, lock string) func(holders string) {
	return func(holders string) {
		log.WarnContext(ctx, "waits_for_lock", slog.String("lock", lock), slog.String("held_by", holders))
	}
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
