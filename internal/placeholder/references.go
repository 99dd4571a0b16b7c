package placeholder

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// References are the configured columns, bound to one state of the database.
type References struct {
	edges []edge
}

// edge is one column that refers to users. Its label is table.column.
type edge struct {
	dml.Edge

	label string
}

// querySQL returns the statement that queries all columns for the user $1. Its result is
// an array with one text for each column: the name of the first row that refers to the
// user, or NULL. Each subquery stops at that row. Bounds and order make each subquery an
// index scan, even if the statistics of the table are wrong.
func (r *References) querySQL() string {
	samples := render.Each(r.edges, func(e edge) string {
		column := "child." + pgcatalog.Quote(e.Columns[0])
		return fmt.Sprintf("(SELECT %s FROM %s WHERE %s%s LIMIT 1)",
			pgcatalog.Shown("child", e.PrimaryKey), e.FromItem(), e.Compare[0].Between(column, "given.user_id"),
			e.Compare[0].InOrder(column))
	})
	return "SELECT ARRAY[" + strings.Join(samples, ",\n") +
		"]::pg_catalog.text[] FROM (SELECT $1::bigint) AS given (user_id)"
}

// blockers returns the columns that refer to a user, from the result of querySQL.
func (r *References) blockers(samples []*string) []Blocker {
	found := []Blocker{}
	for i, sample := range samples {
		if sample != nil {
			found = append(found, Blocker{Column: r.edges[i].label, Sample: *sample})
		}
	}
	return found
}

// Above returns the tables from which a deletion reaches the tables of columns, at any
// depth, by loose or native foreign keys. When a group has just been deleted, rows that
// refer to its placeholders are often pending for deletion themselves. defs are the
// definitions of loose foreign keys.
func (r *References) Above(
	ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, defs []definitions.Definition, columns []string,
) ([]string, error) {
	var schemas, tables []string
	for _, e := range r.edges {
		if slices.Contains(columns, e.label) {
			schemas, tables = append(schemas, e.Child.Schema), append(tables, e.Child.Name)
		}
	}
	var sides [4][]string
	for _, d := range defs {
		if d.OnDelete != definitions.Delete {
			continue
		}
		for i, name := range []definitions.Name{d.Child, d.Parent} {
			if name.Schema == "" {
				name.Schema = names.Tracked
			}
			sides[2*i], sides[2*i+1] = append(sides[2*i], name.Schema), append(sides[2*i+1], name.Table)
		}
	}
	rows, _ := db.Query(ctx, names.Render(statement("tombstones")), schemas, tables, sides[0], sides[1], sides[2],
		sides[3])
	above, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return above, problem.Doing(err, "find parents of references")
}

// Pending returns the tables that have pending tombstones in a database.
func Pending(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, tables []string) ([]string, error) {
	rows, _ := db.Query(ctx, names.Render(statement("pending")), tables)
	pending, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return pending, problem.Doing(err, "find pending tombstones")
}

// The statements below must be rendered for the configured schemas. In statements about
// eligible rows, $1 is Rules.MaxAttempts (integer) and $2 is Rules.RetryPeriod in seconds
// (float8).

//go:embed queries
var queries embed.FS

const (
	// DetailsTable is the name of the table of placeholders.
	DetailsTable = "import_placeholder_user_details"
	// since is the SQL expression for the start of the retry period. An eligible row was
	// last tried before that time. The expression uses statement_timestamp(), because
	// clock_timestamp() is volatile and cannot limit an index scan.
	since = `(pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $2::pg_catalog.float8))`
	// untried and tried are the conditions of eligible rows without an attempt and with
	// an earlier attempt. Each can use the index of the ownerless rows.
	untried   = ownerless + " AND detail.last_deletion_attempt_at IS NULL"
	tried     = ownerless + " AND detail.last_deletion_attempt_at OPERATOR(pg_catalog.<) " + since
	ownerless = "detail.namespace_id IS NULL AND detail.deletion_attempts OPERATOR(pg_catalog.<) $1"
	// unqueued excludes placeholders in the queue of users to be deleted. Another attempt
	// would have no effect on them.
	unqueued = `NOT EXISTS (SELECT FROM "public".users_ghost_user_migrations AS queued
    WHERE queued.user_id OPERATOR(pg_catalog.=) detail.placeholder_user_id)`
	// nextAttempt is the earliest time of the next attempt of a row that was tried.
	nextAttempt = `(tried.last_deletion_attempt_at OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $2::pg_catalog.float8))`
	// waits is the condition that the placeholder's job is waiting or running.
	waits = `"sexton".job_waits('` + DeleteKind + `',
    '{"user_id":' OPERATOR(pg_catalog.||) detail.placeholder_user_id::pg_catalog.text OPERATOR(pg_catalog.||) '}')`
	isPlaceholder = `EXISTS (SELECT FROM "public".users AS placeholder
    WHERE placeholder.id OPERATOR(pg_catalog.=) detail.placeholder_user_id AND placeholder.user_type OPERATOR(pg_catalog.=) 15)`
)

// statements returns the SQL files of the folder queries, and the parts that they
// contain.
func statements() pgcatalog.Texts {
	return pgcatalog.Texts{Files: queries, Parts: map[string]string{
		"detail": `"public".` + DetailsTable + ` AS detail`, "since": since, "untried": untried, "tried": tried,
		"unqueued": unqueued, "waits": waits,
		"placeholder": isPlaceholder, "next_attempt": nextAttempt, "kind": DeleteKind,
	}}
}

func statement(name string, more ...string) string { return statements().Statement(name, more...) }

// DueSQL returns the condition that any placeholder can be offered now.
func DueSQL() string { return statement("due") }

// CountDueSQL returns an expression for the number of placeholders that can be offered
// now. It counts at most 10,001 rows without an attempt and 10,001 rows with an earlier
// attempt.
func CountDueSQL() string { return statement("count_due") }

// NextDueSQL returns an expression for the seconds (float8) until the next deferred row
// is due, or 0 if no row is deferred.
func NextDueSQL() string { return statement("next_due") }
