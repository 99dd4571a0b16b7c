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
	parent, f, err := e.parent(ctx, s)
	if err != nil || parent == nil {
		return nil, err
	}
	at, columns, terms := make([]int, len(parent.KeyColumns)), make([]string, len(parent.KeyColumns)), make([]string, len(parent.KeyColumns))
	for i, column := range parent.KeyColumns {
		if at[i] = f.former(&s.layout, column); at[i] < 0 {
			return nil, nil
		}
		columns[i] = "r." + pgcatalog.Quote(s.Columns[at[i]])
		terms[i] = columns[i] + "::pg_catalog.text"
	}
	term := terms[0]
	if len(terms) > 1 {
		term = "ARRAY[" + strings.Join(terms, ", ") + "]::pg_catalog.text"
	}
	sql := fmt.Sprintf("SELECT pg_catalog.array_agg(%s) FROM %s WHERE %s AND pg_catalog.num_nulls(%s) OPERATOR(pg_catalog.=) 0",
		term, s.rows(at...), among, strings.Join(columns, ", "))
	if err := tx.QueryRow(ctx, sql, s.args(s.mask(places))...).Scan(&keys); err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	return keys, nil
}
