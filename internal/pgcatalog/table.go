package pgcatalog

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
	"sexton/internal/render"
)

//go:embed queries
var queries embed.FS

// text returns the statement in an embedded file.
func text(name string) string {
	data, _ := queries.ReadFile("queries/" + name + ".sql")
	return string(data)
}

// Table identifies a relation by OID, schema and name.
type Table struct {
	OID    uint32
	Schema string
	Name   string
}

// Quote returns a name as a quoted SQL identifier.
func Quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// QuoteAll returns a list of quoted SQL identifiers.
func QuoteAll(names []string) string {
	return strings.Join(render.Each(names, Quote), ", ")
}

// Literal returns a text as an SQL string constant that is valid under any
// standard_conforming_strings.
func Literal(value string) string {
	quoted := "'" + strings.ReplaceAll(value, "'", "''") + "'"
	if strings.Contains(value, `\`) {
		quoted = "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// SQL returns the quoted, qualified name.
func (t Table) SQL() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// Label returns schema.table for logs and statistics, without "public.".
func (t Table) Label() string { return t.In("public") }

// In returns the name, without the schema if that is the given schema.
func (t Table) In(schema string) string {
	if t.Schema == schema {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// Beginner is a pool, a connection or a transaction.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// As is a database connection with a role. Privileges are checked for this role instead
// of the connected role.
type As struct {
	Beginner

	Role string
}

// RoleOf returns the role whose privileges are checked. "" means the connected role.
func RoleOf(db Beginner) string {
	as, _ := db.(As)
	return as.Role
}

// Settled runs do in a transaction whose settings for resolving names, and for printing
// and reading values, do not depend on the database and the role.
func Settled(ctx context.Context, db Beginner, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, Pinned()); err != nil {
			return fmt.Errorf("set transaction settings: %w", err)
		}
		return do(tx)
	})
}

// Unlocked runs do with a lock timeout of 100 ms. do locks tables only to print
// expressions, as pg_get_expr does. If another session holds a conflicting lock, Unlocked
// returns nil, and do has no result.
func Unlocked(ctx context.Context, tx pgx.Tx, do func(nested pgx.Tx) error) error {
	nested, err := tx.Begin(ctx)
	if err != nil {
		return fmt.Errorf("set savepoint: %w", err)
	}
	if _, err = nested.Exec(ctx, "SET LOCAL lock_timeout = '100ms'"); err == nil {
		err = do(nested)
	}
	if back := nested.Rollback(ctx); back != nil {
		return errors.Join(err, back)
	}
	if SQLState(err) == "55P03" {
		return nil
	}
	return err
}

// SQLState returns the SQLSTATE of a server's error, and "" for other errors.
func SQLState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// Named returns the OIDs of tables, views and foreign tables by schema and name, in two
// parallel slices. Names that do not exist are left out.
func Named(ctx context.Context, db dbsqlc.DBTX, schemas, names []string) ([]uint32, error) {
	return oids(ctx, db, text("named"), schemas, names)
}

// InSchemas returns the OIDs of all tables, views and foreign tables of schemas.
func InSchemas(ctx context.Context, db dbsqlc.DBTX, schemas []string) ([]uint32, error) {
	return oids(ctx, db, text("in_schemas"), schemas)
}

func oids(ctx context.Context, db dbsqlc.DBTX, sql string, args ...any) ([]uint32, error) {
	rows, _ := db.Query(ctx, sql, args...)
	found, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	return found, problem.Doing(err, "find tables")
}

// Action is the effect of a foreign key when the row that it refers to is deleted:
// pg_constraint.confdeltype.
type Action string

// These constants are the values of pg_constraint.confdeltype.
const (
	NoAction   Action = "a"
	Restrict   Action = "r"
	Cascade    Action = "c"
	SetNull    Action = "n"
	SetDefault Action = "d"
)

// ForeignKey is a foreign key of a table.
type ForeignKey struct {
	Name string
	// Table is the OID of the referring table. Target is the OID of the referenced table.
	// Table and Target may be the same table.
	Table, Target uint32
	OnDelete      Action
	// Columns holds the referring columns of Table. TargetColumns holds the referenced
	// columns of Target, in the same order. Set holds the columns that ON DELETE SET
	// changes.
	Columns, TargetColumns, Set []string
	// Period reports that the last columns are ranges, and that rows with overlapping
	// ranges refer to each other.
	Period bool
}

// ForeignKeys returns the foreign keys of the database, ordered by the referring table's
// name and the positions of its columns. It leaves out keys that partitions have
// inherited and keys that Postgres created for the partitions of a target.
func ForeignKeys(ctx context.Context, db dbsqlc.DBTX) ([]ForeignKey, error) {
	rows, _ := db.Query(ctx, text("foreign_keys"))
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (key ForeignKey, err error) {
		err = row.Scan(&key.Name, &key.Table, &key.Target, &key.OnDelete, &key.Columns, &key.TargetColumns, &key.Set,
			&key.Period)
		return key, err
	})
	return keys, problem.Doing(err, "read foreign keys")
}
