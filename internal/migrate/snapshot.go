package migrate

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/triggers"
)

// relation is a table, view, index or sequence.
type relation struct {
	// kind is pg_class.relkind. It is empty if the relation does not exist.
	kind string
	// ours reports that the comment of the relation begins with "Sexton:".
	ours           bool
	columns, types []string
}

func (r relation) exists() bool { return r.kind != "" }

// keyType returns the type in which Sexton stores the keys of a column, or "" if the type
// of the column is not supported.
func (r relation) keyType(column string) string {
	switch kind := r.typeOf(column); kind {
	case "smallint", "integer", "bigint":
		return "bigint"
	case "uuid", "text":
		return kind
	}
	return ""
}

func (r relation) typeOf(column string) string {
	if at := slices.Index(r.columns, column); at >= 0 {
		return r.types[at]
	}
	return ""
}

// identity returns the qualified and quoted name of an object.
func identity(schema, name string) string { return quote(schema) + "." + name }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// snapshot is the content of a database in one transaction.
type snapshot struct {
	role, database string
	// server is the text of the server's version.
	server string

	hasSchema bool
	// comment is the comment of the schema sexton.
	comment                        string
	hasTracked, mayCreateInTracked bool

	// own holds the relations in the schema sexton. tracked holds the tables of the
	// tracked schema that components use. elsewhere holds the qualified names of Sexton's
	// tables in other schemas.
	own, tracked map[string]relation
	elsewhere    map[string]string
	// bodies holds the bodies of the functions in the schema sexton.
	bodies map[string]string
	// versions holds the installed version of each component. A component that is not
	// installed is absent.
	versions map[string]int64
	// unmet holds the problems with the application's tables and rules, by component.
	unmet map[string]problem.List
}

// readSnapshot reads the content of a database.
func (db Database) readSnapshot(ctx context.Context, on beginner) (snap snapshot, err error) {
	err = pgx.BeginTxFunc(ctx, on, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, pgcatalog.Pinned()); err != nil {
				return err
			}
			snap, err = db.readSnapshotIn(ctx, tx)
			return err
		})
	return snap, err
}

func (db Database) readSnapshotIn(ctx context.Context, tx pgx.Tx) (snapshot, error) {
	snap := snapshot{
		own: map[string]relation{}, tracked: map[string]relation{}, elsewhere: map[string]string{},
		bodies:   map[string]string{},
		versions: map[string]int64{},
	}
	snap.server = tx.Conn().PgConn().ParameterStatus("server_version")
	err := tx.QueryRow(ctx, sqlText("database"), db.TrackedSchema).Scan(
		&snap.role, &snap.database, &snap.hasSchema, &snap.comment, &snap.hasTracked, &snap.mayCreateInTracked)
	if err != nil {
		return snap, fmt.Errorf("read schemas: %w", err)
	}
	rows, _ := tx.Query(ctx, sqlText("relations"), db.TrackedSchema,
		append(trackedTables(), db.Users.Table, db.Groups.Table))
	var space, name, comment string
	var found relation
	if _, err := pgx.ForEachRow(rows, []any{&space, &name, &found.kind, &comment, &found.columns, &found.types},
		func() error {
			found.ours = strings.HasPrefix(comment, "Sexton:")
			switch space {
			case schema:
				snap.own[name] = found
			case db.TrackedSchema:
				snap.tracked[name] = found
			default:
				snap.elsewhere[name] = identity(space, name)
			}
			found = relation{}
			return nil
		}); err != nil {
		return snap, fmt.Errorf("read tables: %w", err)
	}
	rows, _ = tx.Query(ctx, sqlText("functions"))
	var body string
	if _, err := pgx.ForEachRow(rows, []any{&name, &body}, func() error {
		snap.bodies[name] = body
		return nil
	}); err != nil {
		return snap, fmt.Errorf("read functions: %w", err)
	}
	for _, part := range versionPart.FindAllStringSubmatch(snap.comment, -1) {
		snap.versions[part[1]], _ = strconv.ParseInt(part[2], 10, 64)
	}
	if snap.unmet, err = db.readUnmet(ctx, tx, snap); err != nil {
		return snap, err
	}
	return snap, db.explain(snap, readRiverVersion(ctx, tx, snap), printedGrants)
}

var versionPart = regexp.MustCompile(`([a-z_]+) ([0-9]+)`)

func readRiverVersion(ctx context.Context, tx pgx.Tx, snap snapshot) error {
	if !snap.own["river_migration"].exists() {
		return nil
	}
	var version int64
	if err := tx.QueryRow(ctx, sqlText("river_version")).Scan(&version); err != nil {
		return fmt.Errorf("read version of River's tables: %w", err)
	}
	snap.versions[River] = version
	return nil
}

func (db Database) readSnapshotOnce(ctx context.Context) (snap snapshot, err error) {
	err = db.reading(ctx, func(on beginner) (err error) {
		snap, err = db.readSnapshot(ctx, on)
		return err
	})
	return snap, err
}

// beginner is a pool or a connection.
type beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// reading runs do on Sessions. If Sessions is nil, it opens a connection and closes it
// afterwards.
func (db Database) reading(ctx context.Context, do func(on beginner) error) error {
	if db.Sessions != nil {
		return do(db.Sessions)
	}
	conn, err := pgx.ConnectConfig(ctx, db.Conn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(conn)
}

// These texts are fixes of a PrivilegeError: for reading, and for changing objects of
// another role.
const (
	printedGrants = "the statements that `sexton grants` prints"
	asOwner       = "the command again as a role with that privilege, such as the role that ran `sexton migrate up` before"
)

// explain returns a *PrivilegeError if err reports a missing privilege. It adds the
// server's hint to other errors.
func (db Database) explain(snap snapshot, err error, grant string) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && pgErr.Code != insufficientPrivilege && pgErr.Hint != "":
		return fmt.Errorf("%w (%s)", err, pgErr.Hint)
	case !ok || pgErr.Code != insufficientPrivilege:
		return err
	}
	return &PrivilegeError{Database: db.Name, Role: snap.role, Missing: pgErr.Message, Grant: grant}
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// list returns all rows of a query. what describes them in the error.
func list[T any](ctx context.Context, on querier, what string, read pgx.RowToFunc[T], sql string,
	args ...any,
) ([]T, error) {
	rows, _ := on.Query(ctx, sql, args...)
	found, err := pgx.CollectRows(rows, read)
	return found, problem.Doing(err, "read %s", what)
}

//go:embed queries
var sqlFiles embed.FS

// sqlText returns the text of an embedded file.
func sqlText(name string) string {
	text, _ := sqlFiles.ReadFile("queries/" + name + ".sql")
	return string(text)
}

// migrateLock is the advisory lock of migrations of a database: "sexmigr" in ASCII.
const migrateLock int64 = 0x7365786d696772

// sessionSettings holds the statements that make a session independent of the settings of
// the role and the database. The short lock_timeout limits how long statements of the
// application wait in the lock queue while a migration waits.
const sessionSettings = `
SET search_path = pg_catalog, pg_temp;
SET standard_conforming_strings = on;
SET quote_all_identifiers = off;
SET default_transaction_isolation = 'read committed';
SET client_min_messages = warning;
SET statement_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET lock_timeout = '2s';
`

// session holds the connections of a migration to a locked database.
type session struct {
	db   Database
	log  *slog.Logger
	pool *pgxpool.Pool
}

// withSession runs do while it holds the advisory lock of migrations.
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
	return do(&session{db: db, log: log, pool: pool})
}

// open returns a pool of four connections: for the lock, migrations, River and triggers.
func (db Database) open(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, fmt.Errorf("configure connections: %w", err)
	}
	config.ConnConfig = db.Conn.Copy()
	config.MaxConns = 4
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sessionSettings)
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	return pool, problem.Doing(err, "connect")
}

// lock waits for the lock until ctx ends, and logs its holders.
func lock(ctx context.Context, log *slog.Logger, pool *pgxpool.Pool) (unlock func(), err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	report := waits(ctx, log)
	err = triggers.AwaitLock(ctx, conn.Conn(), migrateLock, func(holders string) { report("migrations", holders) })
	if err != nil {
		conn.Release()
		return nil, fmt.Errorf("wait for other migrations: %w", err)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		// The lock needs no explicit release: it ends when the pool closes the session.
		_ = conn.Hijack().Close(ctx)
	}, nil
}

// waits returns a function that logs a lock that a command waits for.
func waits(ctx context.Context, log *slog.Logger) func(lock, holders string) {
	return func(lock, holders string) {
		log.WarnContext(ctx, "waits_for_lock", slog.String("lock", lock), slog.String("held_by", holders))
	}
}

// replacer replaces the placeholders and the tracked schema's name in SQL of package
// sqlfiles. It also replaces the dollar quotes of function bodies if the name contains
// them.
func (db Database) replacer(snap snapshot, component string) *strings.Replacer {
	texts := db.userTexts(snap)
	if component == AdjournedGroups {
		texts = append(texts, db.groupTexts(snap)...)
	}
	if db.TrackedSchema == "public" {
		return strings.NewReplacer(texts...)
	}
	tag := "$sexton$"
	for strings.Contains(db.TrackedSchema, tag) {
		tag = tag[:len(tag)-1] + "_$"
	}
	tracked := pgx.Identifier{db.TrackedSchema}.Sanitize()
	return strings.NewReplacer(append(texts,
		`'"public".`, "'"+strings.ReplaceAll(tracked, "'", "''")+".",
		`"public"`, tracked,
		`$sexton$`, tag,
	)...)
}
