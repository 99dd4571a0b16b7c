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

// lookSQL is the one statement that queries all columns for the user $1. It returns an
// array with one text for each column: the name of the first row that refers to the user,
// or NULL. Each query stops at that row. Bounds and order make it an index scan, whatever
// the statistics say of the table.
func (r *References) lookSQL() string {
	samples := render.Each(r.edges, func(e edge) string {
		column := "child." + pgcatalog.Quote(e.Columns[0])
		return fmt.Sprintf("(SELECT %s FROM %s WHERE %s%s LIMIT 1)",
			pgcatalog.Shown("child", e.PrimaryKey), e.FromItem(), e.Compare[0].Between(column, "looked.user_id"),
			e.Compare[0].InOrder(column))
	})
	return "SELECT ARRAY[" + strings.Join(samples, ",\n") +
		"]::pg_catalog.text[] FROM (SELECT $1::bigint) AS looked (user_id)"
}

// blockers returns the columns that refer to a user, from the result of lookSQL.
func (r *References) blockers(samples []*string) []Blocker {
	found := []Blocker{}
	for i, sample := range samples {
		if sample != nil {
			found = append(found, Blocker{Column: r.edges[i].label, Sample: *sample})
		}
	}
	return found
}

// Above returns the tables whose tombstones may take away rows of the columns' tables:
// what refers to a placeholder whose group has just gone often waits for its own
// deletion. defs are those of the loose foreign keys.
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
	return above, problem.Doing(err, "look for parents of references")
}

// Pending returns those of the tables that have pending tombstones in a database.
func Pending(ctx context.Context, db dbsqlc.DBTX, names pgcatalog.Names, tables []string) ([]string, error) {
	rows, _ := db.Query(ctx, names.Render(statement("pending")), tables)
	pending, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return pending, problem.Doing(err, "look for tombstones")
}

// All statements are to be rendered for the configured schemas. Where they look at
// eligible rows, $1 is Rules.MaxAttempts (integer), and $2 Rules.RetryPeriod in seconds
// (float8).

//go:embed queries
var queries embed.FS

const (
	// DetailsTable is the name of the table in which placeholders wait.
	DetailsTable = "import_placeholder_user_details"
	// since is the time before which a row has to have been tried to be offered again. It
	// is statement_timestamp() and not clock_timestamp(), which is volatile and would
	// bound no index.
	since = `(pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $2::pg_catalog.float8))`
	// untried and tried are the two sorts of detail rows that may be offered: never
	// tried, and tried long enough ago. The index of the ownerless rows serves each.
	untried   = ownerless + " AND detail.last_deletion_attempt_at IS NULL"
	tried     = ownerless + " AND detail.last_deletion_attempt_at OPERATOR(pg_catalog.<) " + since
	ownerless = "detail.namespace_id IS NULL AND detail.deletion_attempts OPERATOR(pg_catalog.<) $1"
	// unqueued leaves out placeholders that are in the queue of the users to be deleted:
	// another attempt would do nothing there but count, however long the queue is.
	unqueued = `NOT EXISTS (SELECT FROM "public".users_ghost_user_migrations AS queued
    WHERE queued.user_id OPERATOR(pg_catalog.=) detail.placeholder_user_id)`
	// nextAttempt is the earliest time of the next attempt of a row that was tried.
	nextAttempt = `(tried.last_deletion_attempt_at OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $2::pg_catalog.float8))`
	// waits reports whether the placeholder's job waits or runs.
	waits = `"sexton".job_waits('` + DeleteKind + `',
    '{"user_id":' OPERATOR(pg_catalog.||) detail.placeholder_user_id::pg_catalog.text OPERATOR(pg_catalog.||) '}')`
	isPlaceholder = `EXISTS (SELECT FROM "public".users AS placeholder
    WHERE placeholder.id OPERATOR(pg_catalog.=) detail.placeholder_user_id AND placeholder.user_type OPERATOR(pg_catalog.=) 15)`
)

// statements are those of the package.
func statements() pgcatalog.Texts {
	return pgcatalog.Texts{Files: queries, Parts: map[string]string{
		"detail": `"public".` + DetailsTable + ` AS detail`, "since": since, "untried": untried, "tried": tried,
		"unqueued": unqueued, "waits": waits,
		"placeholder": isPlaceholder, "next_attempt": nextAttempt, "kind": DeleteKind,
	}}
}

func statement(name string, more ...string) string { return statements().Statement(name, more...) }

// DueSQL is a condition: some placeholder can be offered now.
func DueSQL() string { return statement("due") }

// CountDueSQL is an expression: how many can be offered now, more than 10,000 where it is
// no use to count on. Their jobs are looked for as DueSQL does.
func CountDueSQL() string { return statement("count_due") }

// NextDueSQL is an expression: in how many seconds (float8) the next row can be offered
// again, 0 where none is put off.
func NextDueSQL() string { return statement("next_due") }
