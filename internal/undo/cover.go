package undo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// Lacking is a table that is not saved completely.
type Lacking struct {
	Table string
	// Excluded are columns that are not saved. TooLarge is the size in bytes of a table
	// that exceeds the limit for all saved rows, or 0.
	Excluded []string
	TooLarge int64
	// Rules are the rules for DELETE and UPDATE of a child table. The rows of a table
	// with such rules are not saved.
	Rules []string
	// Heirs are tables that inherit from a parent. Rows that are deleted from the parent
	// cannot be distinguished from rows of these tables.
	Heirs []string
}

// Lacks returns the tables that are not saved completely. The argument parents is the
// number of parents. They are the first elements of tables, and the rest are children.
// exclude holds the excluded columns. limit is the largest size of a table in bytes, or 0
// for no limit.
func Lacks(ctx context.Context, conn *pgx.Conn, schemas, tables []string, parents int, exclude []string,
	limit int,
) (found []Lacking, _ error) {
	rows, _ := conn.Query(ctx, text("uncovered"), schemas, tables, append([]string{}, exclude...), limit, parents)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Lacking])
	if err != nil {
		return nil, fmt.Errorf("find tables that are not kept: %w", err)
	}
	for _, one := range all {
		if len(one.Excluded) > 0 || one.TooLarge > 0 || len(one.Rules)+len(one.Heirs) > 0 {
			found = append(found, one)
		}
	}
	return found, nil
}

// TablePrivileges holds the privileges that a role lacks on a table. Grant is the
// statement that grants them.
type TablePrivileges struct {
	Table, Privileges, Grant string
}

// MissingPrivileges returns the privileges on tables that a role lacks. tables and
// privileges are parallel lists. Tables are named as in SQL, and privileges are separated
// by commas. The role "" is the current role.
func MissingPrivileges(ctx context.Context, conn *pgx.Conn, tables, privileges []string,
	role string,
) ([]TablePrivileges, error) {
	rows, _ := conn.Query(ctx, text("privileges"), tables, privileges, role)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[TablePrivileges])
	return found, problem.Doing(err, "find privileges that undo lacks")
}

// PersonalColumns holds the columns of a table whose names look like personal data. Names
// holds the same columns in the form of the configuration key exclude_columns.
type PersonalColumns struct {
	Table          string
	Columns, Names []string
}

// Personal returns the columns of tables whose names look like personal data, except
// excluded columns. Tables are named as in SQL. Names without a schema are in the tracked
// schema.
func Personal(ctx context.Context, conn *pgx.Conn, tracked string, tables,
	exclude []string,
) ([]PersonalColumns, error) {
	rows, _ := conn.Query(ctx, text("personal"), tables, append([]string{}, exclude...), tracked)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[PersonalColumns])
	return found, problem.Doing(err, "find personal columns")
}
