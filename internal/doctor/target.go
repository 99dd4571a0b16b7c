package doctor

import (
	"context"
	"embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
)

//go:embed queries
var sqlFiles embed.FS

// sqlText is one of these files. As parts of the program they are never missing.
func sqlText(name string) string {
	text, _ := sqlFiles.ReadFile("queries/" + name + ".sql")
	return string(text)
}

// Target is a connected database and what is meant to happen in it.
type Target struct {
	Database database.Database
	// Installed tells that the database has Sexton's tables in the versions that this program needs.
	Installed bool
	// Undirected tells that the direct connection is not to be had, so that nothing can be heard on it.
	Undirected bool
	// Grants are the rights that the worker's role needs, as migrate.Grants writes them for the schemas
	// "sexton" and "public".
	Grants string
	// Connections is how many connections one worker may open to this database. Server and Role are what it may open to all
	// databases on the same server, and as the same role there; zero where this is the only one.
	Connections  int
	Server, Role Share
	// Parents are the tracked tables; nil where the definitions leave that open.
	Parents []Parent

	// OldTransaction is the age from which a transaction is a finding; 0 means 1 h.
	OldTransaction time.Duration
	// Hearing is how long a notification may take; 0 means 2 s.
	Hearing time.Duration
	// Now is this machine's clock; nil means time.Now.
	Now func() time.Time
}

// Share is the part of one limit that several of the configured databases need.
type Share struct {
	Connections int
	Databases   []string
}

// Parent is a table whose deletions are recorded.
type Parent struct {
	Schema, Table string
	// Recorded is the table's name in tombstones.
	Recorded string
}

// check is one check of Examine.
type check struct {
	name string
	look func(context.Context) ([]Finding, error)
	// skipped reports whether it has nothing to look at, by the names of the checks that found nothing.
	skipped func(passed map[string]bool) bool
}

// checks are all of them, in their order.
func (t Target) checks() []check {
	reading := func(look func(context.Context, pgx.Tx) ([]Finding, error)) func(context.Context) ([]Finding, error) {
		return func(ctx context.Context) ([]Finding, error) { return t.read(ctx, look) }
	}
	// LISTEN is not allowed during recovery.
	deaf := func(passed map[string]bool) bool { return t.Undirected || !passed["recovery"] }
	unknown := func(map[string]bool) bool { return !t.Installed || t.Parents == nil }
	return []check{
		{"version", reading(version), nil},
		{"recovery", reading(recovery), nil},
		{"clock", t.clock, nil},
		{"listen", t.listen, deaf},
		{"notify_queue", reading(notifyQueue), nil},
		{"statistics", reading(statistics), nil},
		{"transactions", reading(t.transactions), nil},
		{"prepared_transactions", reading(t.prepared), nil},
		{"settings", reading(settings), nil},
		{"search_path", t.path, nil},
		{"connections", reading(t.room), nil},
		{"autovacuum", reading(t.autovacuum), nil},
		{"privileges", reading(t.privileges), nil},
		{"partitions", reading(t.partitions), nil},
		{"tombstones", reading(t.tombstones), unknown},
		{"subscriptions", reading(t.subscriptions), unknown},
	}
}

// Examine makes all checks of one database.
func Examine(ctx context.Context, report *Report, t Target) {
	passed := map[string]bool{}
	for _, c := range t.checks() {
		if c.skipped != nil && c.skipped(passed) {
			report.Skip(t.Database.Name, c.name)
			continue
		}
		passed[c.name] = report.Run(ctx, c.name, t.Database.Name, c.look)
	}
}

// Skip notes that the checks of Examine are not made of a database.
func Skip(report *Report, database string) {
	for _, c := range (Target{}).checks() {
		report.Skip(database, c.name)
	}
}

// read runs look in a transaction in which nothing can be changed and names are printed alike, whatever
// database and role have set.
func (t Target) read(ctx context.Context, look func(context.Context, pgx.Tx) ([]Finding, error)) (found []Finding, err error) {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, t.Database.Pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL quote_all_identifiers = off"); err != nil {
			return fmt.Errorf("settle session: %w", err)
		}
		found, err = look(ctx, tx)
		return err
	})
	return found, err
}

// query asks and collects what word finds in each row. doing says what it is for, in an error.
func query[Row any](
	ctx context.Context, on interface {
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	}, doing, sql string, args []any, word func(Row) []Finding,
) (found []Finding, err error) {
	rows, err := on.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Row])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	for _, value := range values {
		found = append(found, word(value)...)
	}
	return found, nil
}

func quote(names ...string) string { return pgx.Identifier(names).Sanitize() }

// tables are the schemas and names of the parents.
func (t Target) tables() (schemas, names []string) {
	for _, parent := range t.Parents {
		schemas, names = append(schemas, parent.Schema), append(names, parent.Table)
	}
	return schemas, names
}
