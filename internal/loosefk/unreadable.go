package loosefk

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"sexton/internal/each"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// unreadableArgs returns the arguments of unreadable.sql, which returns one row per
// parent that the role may not read, in the given order: schemas, tables, and JSON arrays
// of the key columns.
func unreadableArgs(parents []*Parent) []any {
	schemas, names := namesOf(parents)
	return []any{schemas, names, each.Of(parents, func(p *Parent) string {
		columns, _ := json.Marshal(p.KeyColumns) // Marshal of strings never fails.
		return string(columns)
	})}
}

// eachUnreadable calls do for each row of unreadable.sql.
func eachUnreadable(rows pgx.Rows, do func(table, fix string)) error {
	var table, fix string
	_, err := pgx.ForEachRow(rows, []any{&table, &fix}, func() error {
		do(table, fix)
		return nil
	})
	return err
}

// namesOf returns the parents' schemas and tables.
func namesOf(parents []*Parent) (schemas, names []string) {
	return each.Of(parents, func(p *Parent) string { return p.Schema }), each.Of(parents, func(p *Parent) string { return p.Name })
}

// UnreadableParents lists parents whose keys the connected role may not read. They are
// not cleaned up: a row that cannot be read does not count as deleted.
func UnreadableParents(ctx context.Context, db pgcatalog.Beginner, parents []*Parent) (problem.List, error) {
	var problems problem.List
	err := pgcatalog.Settled(ctx, db, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, statement("unreadable"), unreadableArgs(parents)...)
		return eachUnreadable(rows, func(table, fix string) {
			problems.Add(problem.Problem{Key: table, Message: "the database role may not read this parent, so its tombstones are held", Fix: fix})
		})
	})
	return problems, problem.Doing(err, "read privileges")
}
