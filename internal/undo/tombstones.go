package undo

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// stop ends the clean-up after parents that are back.
func (e *Engine) stop(ctx context.Context, tx pgx.Tx, s *set, places []int32) error {
	keys, err := e.tombstonesOf(ctx, tx, s, places)
	if err != nil || len(keys) == 0 {
		return err
	}
	_, err = tx.Exec(ctx, s.on.Names.Render(text("stop")), s.ID, keys, s.Relation)
	return err
}

// tombstonesOf are the keys that the tombstones of a set's rows have. Other sets may share its ID, and other rows the set.
func (e *Engine) tombstonesOf(ctx context.Context, tx pgx.Tx, s *set, places []int32) (keys []string, _ error) {
	if len(s.Changed) > 0 || len(places) == 0 {
		return nil, nil
	}
	at, columns, err := e.keyColumns(ctx, s)
	if err != nil || len(at) == 0 {
		return nil, err
	}
	sql := fmt.Sprintf("SELECT pg_catalog.array_agg(%s) FROM %s WHERE %s AND pg_catalog.num_nulls(%s) OPERATOR(pg_catalog.=) 0",
		keyText(columns), s.rows(at...), among, strings.Join(columns, ", "))
	if err := tx.QueryRow(ctx, sql, s.args(s.mask(places))...).Scan(&keys); err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	return keys, nil
}

// keyColumns are the columns of a set's rows by which their tombstones name them, with their places in the layout; none where the table has no tombstones.
func (e *Engine) keyColumns(ctx context.Context, s *set) (at []int, columns []string, _ error) {
	parent, f, err := e.parent(ctx, s)
	if err != nil || parent == nil {
		return nil, nil, err
	}
	for _, column := range parent.KeyColumns {
		former := f.former(&s.layout, column)
		if former < 0 {
			return nil, nil, nil
		}
		at, columns = append(at, former), append(columns, "r."+pgcatalog.Quote(s.Columns[former]))
	}
	return at, columns, nil
}

// keyText is a key in the form that tombstones have it in.
func keyText(values []string) string {
	if len(values) == 1 {
		return values[0] + "::pg_catalog.text"
	}
	return "ARRAY[" + strings.Join(values, "::pg_catalog.text, ") + "::pg_catalog.text]::pg_catalog.text"
}
