package loosefk

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// checkValues casts every condition and target value to its column's type. It reports
// values that do not fit, or that would be shortened or rounded, before a batch uses
// them.
func (r *resolver) checkValues(ctx context.Context) error {
	for _, s := range r.sites {
		if s.DB == nil {
			continue
		}
		var check []*Reference
		for _, parents := range r.parents {
			for _, reference := range UsableIn(s.Name, slices.Collect(maps.Values(parents))) {
				if reference.Action != dml.Forbid && (len(reference.Conditions) > 0 || reference.Target.Column != "") {
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
	if reference.Target.Column == "" {
		return nil
	}
	return r.checkValue(ctx, tx, reference, ".target_value", &reference.Target)
}

// checkValue reports a value that does not fit its column. It replaces any other value by
// its text form under the settings of pgcatalog.Settled. Batches read that text as the
// same value, whatever settings the role has.
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
