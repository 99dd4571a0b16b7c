package undo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// Forget deletes the saved rows of a deletion, in one transaction per database. It does
// not delete rows of other deletions in the same sets.
func (e *Engine) Forget(ctx context.Context, id int64) (rows int64, err error) {
	err = e.withLeases(ctx, func() error {
		u, err := e.load(ctx, id)
		if err != nil {
			return err
		}
		// Forget the parents last, because a failed call can be repeated only while the
		// parents are saved.
		for _, sets := range slices.Backward(u.steps()) {
			forgotten := int64(0)
			if err := e.fenced(ctx, sets[0].on, false, func(tx pgx.Tx) error {
				if err := setValueSettings(ctx, tx); err != nil {
					return err
				}
				for _, s := range sets {
					if err := e.forget(ctx, tx, u, s); err != nil {
						return fmt.Errorf("forget rows of %s: %w", s.Name, err)
					}
					forgotten += int64(len(s.owned))
				}
				return nil
			}); err != nil {
				return fmt.Errorf("database %s: %w", sets[0].on.Name, err)
			}
			rows += forgotten
		}
		return nil
	})
	return rows, err
}

// forget deletes the saved rows of one set. It also removes the set from the origins of
// pending tombstones and rechecks, so that a later cleanup saves no children for the set.
func (e *Engine) forget(ctx context.Context, tx pgx.Tx, u *unit, s *set) error {
	shared := func(s *set) bool {
		return len(s.owned) < int(s.Rows) || slices.ContainsFunc(s.Origins,
			func(id int64) bool { return len(u.byID[id]) == 0 })
	}
	g := groupOf(s)
	if !s.changes() {
		var keys []string // A NULL list means the keys of all parents.
		all := !slices.ContainsFunc(u.byID[s.ID], shared)
		if !all {
			t, err := e.readTable(ctx, tx, s.on.Name, &s.layout)
			if err == nil {
				keys, err = e.tombstoneKeys(ctx, tx, g, t, s.owned)
			}
			if err != nil {
				return err
			}
		}
		if all || len(keys) > 0 {
			if _, err := tx.Exec(ctx, s.on.Names.Render(text("remove_origin")), s.ID, keys, s.Relation); err != nil {
				return err //nolint:wrapcheck // Forget names the table.
			}
		}
	}
	sql, args := s.on.Names.Render(text("remove")), g.args(nil)[:2]
	if shared(s) {
		if len(s.owned) == 0 {
			return nil
		}
		sql, args = g.blank(), g.args(s.owned)
	}
	_, err := tx.Exec(ctx, sql, args...)
	return err //nolint:wrapcheck // likewise
}

// blank returns the statement that sets the saved values to NULL in the rows for which
// the mask $4 is true. It does not remove these rows, so the numbers of the other rows do
// not change.
func (g *group) blank() string {
	values, terms := []string{}, []string{}
	for _, at := range g.kept() {
		column := pgcatalog.Quote(g.Columns[at])
		values = append(values, fmt.Sprintf("CASE WHEN NOT %s THEN r.%s END AS %[2]s", inMask, column))
		term := strings.Replace(g.Terms[at], ") FILTER", " ORDER BY gone.ctid) FILTER", 1)
		if g.Arrays[at] == texts {
			term = fmt.Sprintf("pg_catalog.array_agg(gone.%s ORDER BY gone.ctid)::pg_catalog.text", column)
		}
		terms = append(terms, term)
	}
	return fmt.Sprintf(`UPDATE %s AS undo SET c = (
	SELECT ARRAY[%s] FROM (SELECT r.ctid, true AS xmin, %s FROM %s) AS gone
) WHERE undo.id OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.int8[]) AND undo.number OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.int8[])`,
		g.on.Names.Render(`"sexton".undo`), strings.Join(terms, ", "), strings.Join(values, ", "), g.from())
}
