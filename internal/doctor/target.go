package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
)

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

// Examine makes all checks of one database.
func Examine(ctx context.Context, report *Report, t Target) {
	name := t.Database.Name
	reading := func(check string, look func(context.Context, pgx.Tx) ([]Finding, error)) bool {
		return report.Run(ctx, check, name, func(ctx context.Context) ([]Finding, error) { return t.read(ctx, look) })
	}
	reading("version", version)
	writable := reading("recovery", recovery)
	report.Run(ctx, "clock", name, t.clock)
	// LISTEN is not allowed during recovery.
	if writable && !t.Undirected {
		report.Run(ctx, "listen", name, t.listen)
	} else {
		report.Skip(name, "listen")
	}
	reading("notify_queue", notifyQueue)
	reading("statistics", statistics)
	reading("transactions", t.transactions)
	reading("prepared_transactions", t.prepared)
	reading("settings", settings)
	report.Run(ctx, "search_path", name, t.path)
	reading("connections", t.room)
	reading("autovacuum", t.autovacuum)
	reading("privileges", t.privileges)
	reading("partitions", t.partitions)
	if t.Installed && t.Parents != nil {
		reading("tombstones", t.tombstones)
		reading("subscriptions", t.subscriptions)
	} else {
		report.Skip(name, "tombstones", "subscriptions")
	}
}

// Skip notes that the checks of Examine are not made of a database.
func Skip(report *Report, database string) {
	report.Skip(database, "version", "recovery", "clock", "listen", "notify_queue", "statistics", "transactions", "prepared_transactions",
		"settings", "search_path", "connections", "autovacuum", "privileges", "partitions", "tombstones", "subscriptions")
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

// query collects one finding per row.
func query[Row any](ctx context.Context, tx pgx.Tx, sql string, args []any, word func(Row) Finding) ([]Finding, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	var found []Finding
	values, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Row])
	for _, value := range values {
		found = append(found, word(value))
	}
	return found, err
}

func quote(names ...string) string { return pgx.Identifier(names).Sanitize() }
