package undo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// Lacking is a table of which something is not kept.
type Lacking struct {
	Table string
	// Excluded are columns that are never kept. TooLarge is the size in bytes of a table
	// that is above the limit for all that is kept, or 0.
	Excluded []string
	TooLarge int64
	// Rules are the child's own: with them none of its rows is kept.
	Rules []string
	// Heirs inherit from the parent: rows that are deleted from it cannot be told from
	// theirs.
	Heirs []string
}

// Lacks finds what is not kept of tables, of which so many are parents and the others
// children, given the excluded columns and the limit in bytes; 0 is none.
func Lacks(ctx context.Context, conn *pgx.Conn, schemas, tables []string, parents int, exclude []string,
	limit int,
) (found []Lacking, _ error) {
	rows, _ := conn.Query(ctx, text("uncovered"), schemas, tables, append([]string{}, exclude...), limit, parents)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Lacking])
	if err != nil {
		return nil, fmt.Errorf("look what is not kept: %w", err)
	}
	for _, one := range all {
		if len(one.Excluded) > 0 || one.TooLarge > 0 || len(one.Rules)+len(one.Heirs) > 0 {
			found = append(found, one)
		}
	}
	return found, nil
}

// Right is what a role lacks on a table. Grant is the statement that grants Privileges.
type Right struct {
	Table, Privileges, Grant string
}

// LacksRights returns which privileges on tables, in parallel, a role lacks. Tables are
// named as in SQL; role is "" for the current one.
func LacksRights(ctx context.Context, conn *pgx.Conn, tables, privileges []string, role string) ([]Right, error) {
	rows, _ := conn.Query(ctx, text("rights"), tables, privileges, role)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Right])
	return found, problem.Doing(err, "look which rights undo lacks")
}

// PersonalColumns are the columns of a table whose names look personal. Names has each as
// exclude_columns takes it.
type PersonalColumns struct {
	Table          string
	Columns, Names []string
}

// Personal finds columns whose names look personal in tables, which are named as in SQL,
// except excluded ones. Names without a schema are in the tracked one.
func Personal(ctx context.Context, conn *pgx.Conn, tracked string, tables,
	exclude []string,
) ([]PersonalColumns, error) {
	rows, _ := conn.Query(ctx, text("personal"), tables, append([]string{}, exclude...), tracked)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[PersonalColumns])
	return found, problem.Doing(err, "look for personal columns")
}
