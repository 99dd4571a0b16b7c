package loosefk

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// checkValues casts every condition and target value once, and checks the values that
// references write against the child's constraints. So a value that does not fit its
// column, or only shortened or rounded, is found here and not during a batch.
func (r *resolver) checkValues(ctx context.Context) error {
	for _, s := range r.sites {
		if s.DB == nil {
			continue
		}
		var check []*Reference
		for _, parents := range r.parents {
			for _, reference := range UsableIn(s.Name, slices.Collect(maps.Values(parents))) {
				if reference.Action != dml.Forbid && (len(reference.Conditions) > 0 || reference.Updates()) {
					check = append(check, reference)
				}
			}
		}
		if len(check) == 0 {
			continue
		}
		err := pgcatalog.Settled(ctx, s.DB, func(tx pgx.Tx) error {
			for _, reference := range check {
				if err := r.checkValuesOf(ctx, tx, reference); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return &SiteError{Database: s.Name, Err: err}
		}
	}
	return nil
}

func (r *resolver) checkValuesOf(ctx context.Context, tx pgx.Tx, reference *Reference) error {
	for i := range reference.Conditions {
		if err := r.checkValue(ctx, tx, reference, fmt.Sprintf(".conditions[%d].value", i),
			&reference.Conditions[i]); err != nil {
			return err
		}
	}
	if reference.Target.Column != "" {
		if err := r.checkValue(ctx, tx, reference, ".target_value", &reference.Target); err != nil {
			return err
		}
	}
	if reference.Updates() && reference.Broken == "" {
		return r.checkConstraints(ctx, tx, reference)
	}
	return nil
}

type constraint struct{ Label, Expression string }

// readConstraints reads the constraints of a table or of its partitions that only depend
// on the given columns. To print a constraint is to lock its table, so it reads none of a
// table that another session has locked. The statements of a pass find a violation too.
func readConstraints(ctx context.Context, tx pgx.Tx, reference *Reference,
	columns []string,
) (found []constraint, err error) {
	tables := []uint32{reference.Child.OID}
	for _, leaf := range reference.Leaves {
		tables = append(tables, leaf.OID)
	}
	err = pgcatalog.Unlocked(ctx, tx, func(nested pgx.Tx) error {
		rows, err := nested.Query(ctx, statement("constraints"), tables, columns)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[constraint])
		return err
	})
	return found, err
}

// checkConstraints checks the values that a reference writes against the constraints that
// only depend on them. The result of other constraints depends on the row.
func (r *resolver) checkConstraints(ctx context.Context, tx pgx.Tx, reference *Reference) error {
	columns, values, written := reference.Definition.Columns, make([]any, len(reference.Definition.Columns)),
		reference.Types
	what, key := "NULL", ".on_delete"
	if reference.Target.Column != "" {
		columns, values, written = []string{reference.Target.Column}, []any{reference.Target.Value},
			[]string{reference.Target.Type}
		what, key = fmt.Sprintf("value %q", reference.Target.Value), ".target_value"
	}
	row := make([]string, len(columns))
	for i, column := range columns {
		row[i] = fmt.Sprintf("$%d::pg_catalog.text::%s AS %s", i+1, written[i], pgcatalog.Quote(column))
	}
	found, err := readConstraints(ctx, tx, reference, columns)
	if err != nil {
		return fmt.Errorf("read constraints of %s: %w", reference.Child.Label(), err)
	}
	statement := "SELECT (%s) IS FALSE FROM (SELECT " + strings.Join(row, ", ") + ") AS checked"
	typed := constraint{"its type", fmt.Sprintf("pg_catalog.num_nulls(%s) OPERATOR(pg_catalog.>=) 0",
		pgcatalog.QuoteAll(columns))}
	for _, c := range append([]constraint{typed}, found...) {
		var refused bool
		err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
			return nested.QueryRow(ctx, strings.Replace(statement, "%s", c.Expression, 1), values...).Scan(&refused)
		})
		if f := batch.Judge(err); err != nil {
			if f.SQLState == "" || f.Verdict == batch.Fatal {
				return fmt.Errorf("try %s of %s: %w", c.Label, reference.Child.Label(), err)
			}
			// All other errors come from the expression itself.
			refused = strings.HasPrefix(f.SQLState, "22") || strings.HasPrefix(f.SQLState, "23")
		}
		if refused {
			reference.Broken = fmt.Sprintf("%s refuses %s in %s.%s", c.Label, what, reference.Child.Label(),
				strings.Join(columns, ", "))
			r.report(reference.Definition, problem.Error, key, reference.Broken, "change it, or the definition")
			return nil
		}
	}
	return nil
}

// checkValue reports a value that does not fit its column. It replaces a value that fits
// by its text form under Settled, which means the same value in every batch, whatever
// settings the role has.
func (r *resolver) checkValue(ctx context.Context, tx pgx.Tx, reference *Reference, key string,
	value *dml.Value,
) error {
	var becomes string
	var same bool
	// A failed cast must not end the transaction, hence the savepoint.
	err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
		sql := fmt.Sprintf("SELECT ($1::pg_catalog.text::%[1]s)::pg_catalog.text, "+
			"($1::pg_catalog.text::%[1]s)::pg_catalog.text OPERATOR(pg_catalog.=) ($1::pg_catalog.text::%[2]s)::pg_catalog.text", value.Type, value.Base)
		return nested.QueryRow(ctx, sql, value.Value).Scan(&becomes, &same)
	})
	state, fix := pgcatalog.SQLState(err), fmt.Sprintf("it would become %q", becomes)
	switch {
	case strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23"):
		fix = "give a value of that type"
	case err != nil:
		return fmt.Errorf("check value of column %s: %w", value.Column, err)
	case same:
		value.Value = becomes
		return nil
	}
	reference.Broken = fmt.Sprintf("value %q does not fit column %s of type %s", value.Value, value.Column,
		pgcatalog.Short(value.Type))
	r.report(reference.Definition, problem.Error, key, reference.Broken, fix)
	return nil
}
