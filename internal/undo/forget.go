package undo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// Forget removes what is kept of a deletion. Rows of other deletions in the same sets stay.
func (e *Engine) Forget(ctx context.Context, id int64) (rows int64, err error) {
	e.silent = map[string]bool{}
	err = e.with(ctx, id, true, func(u *unit) error { return e.forget(ctx, u, &rows) })
	return rows, err
}

func (e *Engine) forget(ctx context.Context, u *unit, rows *int64) error {
	shared := func(s *set) bool {
		return len(s.owned) < int(s.Rows) || slices.ContainsFunc(s.Origins, func(id int64) bool { return len(u.by[id]) == 0 })
	}
	for _, s := range u.sets {
		if len(s.Changed) > 0 {
			continue
		}
		if err := e.fenced(ctx, s.on, true, func(tx pgx.Tx) (err error) {
			var keys []string // NULL is all of them.
			if slices.ContainsFunc(u.by[s.ID], shared) {
				if keys, err = e.tombstonesOf(ctx, tx, s, s.owned); err != nil || len(keys) == 0 {
					return err
				}
			}
			_, err = tx.Exec(ctx, s.on.Names.Render(text("forsake")), s.ID, keys, s.Relation)
			return err
		}); err != nil {
			return fmt.Errorf("database %s: %w", s.on.Name, err)
		}
	}
	for _, s := range slices.Backward(u.sets) { // The set of parents goes last: until then the command can be given again.
		sql, args := s.on.Names.Render(text("remove")), s.args()
		if shared(s) {
			if len(s.owned) == 0 {
				continue
			}
			sql, args = s.blank(), append(args, s.mask(s.owned))
		}
		if err := e.fenced(ctx, s.on, true, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		}); err != nil {
			return fmt.Errorf("database %s: forget rows of %s: %w", s.on.Name, s.Name, err)
		}
		*rows += int64(len(s.owned))
	}
	return nil
}

// blank is the statement that makes the rows at the places $3 of the set NULL, so that the others keep their places.
func (s *set) blank() string {
	values, terms := []string{}, []string{}
	for _, at := range s.kept() {
		values = append(values, fmt.Sprintf("CASE WHEN NOT %s THEN %s END AS %s",
			among, "r."+pgcatalog.Quote(s.Columns[at]), pgcatalog.Quote(s.Columns[at])))
		terms = append(terms, s.inOrder(at))
	}
	return fmt.Sprintf(`UPDATE %s AS undo SET c = (
	SELECT ARRAY[%s] FROM (SELECT r.ctid, true AS xmin, %s FROM %s) AS gone
) WHERE %s`,
		s.on.Names.Render(`"sexton".undo`), strings.Join(terms, ", "), strings.Join(values, ", "), s.rows(), s.are("undo"))
}

// inOrder is the term of a column over the rows of gone, in the order of their places.
func (l *layout) inOrder(at int) string {
	if l.Arrays[at] == texts {
		return fmt.Sprintf("pg_catalog.array_agg(gone.%s ORDER BY gone.ctid)::pg_catalog.text", pgcatalog.Quote(l.Columns[at]))
	}
	return strings.Replace(l.Terms[at], ") FILTER", " ORDER BY gone.ctid) FILTER", 1)
}
