package loosefk

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/fault"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// One row per parent that the role may not read, in the order given: $1 are schemas, $2 tables, $3 JSON arrays of the key
// columns.
//
//go:embed queries/unreadable.sql
var unreadableSQL string

func unreadableArgs(parents []*Parent) ([]any, error) {
	schemas, names := namesOf(parents)
	keys := make([]string, len(parents))
	for i, parent := range parents {
		columns, err := json.Marshal(parent.KeyColumns)
		if err != nil {
			return nil, fmt.Errorf("list key columns of %s: %w", parent.Recorded, err)
		}
		keys[i] = string(columns)
	}
	return []any{schemas, names, keys}, nil
}

// namesOf are the parents' schemas and tables.
func namesOf(parents []*Parent) (schemas, names []string) {
	return mapped(parents, func(p *Parent) string { return p.Schema }), mapped(parents, func(p *Parent) string { return p.Name })
}

// UnreadableParents lists parents whose keys the connected role may not read. Nothing is cleaned up after those: a row that
// cannot be seen is not a row that is gone.
func UnreadableParents(ctx context.Context, db pgcatalog.Beginner, parents []*Parent) (problem.List, error) {
	args, err := unreadableArgs(parents)
	if err != nil {
		return nil, err
	}
	var problems problem.List
	err = pgcatalog.Settled(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, unreadableSQL, args...)
		if err != nil {
			return err
		}
		var table, fix string
		_, err = pgx.ForEachRow(rows, []any{&table, &fix}, func() error {
			problems.Add(problem.Problem{Key: table, Message: "the database role may not read this parent, so its tombstones are held", Fix: fix})
			return nil
		})
		return err
	})
	return problems, problem.Doing(err, "read privileges")
}

// judge is judge for a statement that looks for a parent. Where the role may not, all of the parent's tombstones are held.
func (r *run) judge(ctx context.Context, parent *Parent, err error, table string) fault.Fault {
	f := fault.In(err, table)
	if f.SQLState != "42501" {
		return f
	}
	args, err := unreadableArgs([]*Parent{parent})
	if err != nil {
		return f
	}
	_, err = r.engine.Session.Run(ctx, batch.Statement{SQL: unreadableSQL, Args: args, Scan: func(rows pgx.Rows) error {
		var name, fix string
		_, err := pgx.ForEachRow(rows, []any{&name, &fix}, func() error {
			f.Table, f.Verdict = parent.Label(), fault.Unavailable
			f.Message = "the database role may not read this parent: " + strings.ReplaceAll(fix, "\n", " ")
			r.unreadable[parent] = f
			return nil
		})
		return err
	}})
	if err != nil {
		return fault.In(err, table)
	}
	return f
}
