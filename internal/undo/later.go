package undo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain/dml"
)

// Deletions are undone last in, first out. If two deletions change the same column of a
// row, the later deletion saves the value that the earlier one wrote. If the earlier
// deletion were undone first, undoing the later one would set the row to that value
// again. Sets are ordered by their numbers, which increase within a database.

// laterRow is a row in a set of another deletion.
type laterRow struct {
	set *set
	row int32
}

// mostCandidates limits how many deletions undoFirst searches for one row.
const mostCandidates = 100

// leaveChangedLater excludes rows in which a later deletion changed some of the same
// columns, unless that change is undone.
func (w *work) leaveChangedLater(ctx context.Context, g *restored) error {
	found, err := w.later(ctx, g, g.pending, func(s *set) bool { return s.changes() })
	if err != nil || len(found) == 0 {
		return err
	}
	maps.Copy(g.later, found)
	g.pending = without(g.pending, g.leftRows())
	return nil
}

// leaveChanged records rows that the UPDATE did not find as not restored. Such a row no
// longer has the value that the deletion wrote. If a later deletion deleted the row, the
// report names that deletion.
func (p *groupRestore) leaveChanged(ctx context.Context, rows []int32) error {
	if !p.changes() || len(rows) == 0 {
		return nil
	}
	found, err := p.work.later(ctx, p.restored, rows, func(s *set) bool { return !s.changes() })
	if err != nil {
		return err
	}
	for _, row := range rows {
		if later, deleted := found[row]; deleted {
			p.restored.later[row] = later
		} else {
			p.leave(changedSince, row)
		}
	}
	return nil
}

// later searches the sets for which include returns true. It returns, for rows of a
// group, the newest row with the same primary key that another deletion saved later and
// that is not restored.
func (w *work) later(ctx context.Context, g *restored, rows []int32, include func(*set) bool) (
	map[int32]laterRow, error,
) {
	if len(rows) == 0 {
		return nil, nil
	}
	sets, err := w.laterSets(ctx, g)
	if err != nil {
		return nil, err
	}
	sets = slices.DeleteFunc(slices.Clone(sets), func(s *set) bool {
		return s.Number <= g.Number || !include(s) || !slices.Equal(s.KeyCols, g.KeyCols)
	})
	if len(sets) == 0 {
		return nil, nil
	}
	keys, numbers, err := w.rowKeys(ctx, g, rows)
	if err != nil {
		return nil, err
	}
	found := map[int32]laterRow{}
	for len(sets) > 0 {
		alike := []*set{sets[0]}
		for _, s := range sets[1:] {
			if len(alike) < mostSets && s.layout.ID == sets[0].layout.ID && slices.Equal(s.Fields, sets[0].Fields) {
				alike = append(alike, s)
			}
		}
		sets = slices.DeleteFunc(sets, func(s *set) bool { return slices.Contains(alike, s) })
		if err := w.laterIn(ctx, groupOf(alike...), keys, numbers, found); err != nil {
			return nil, fmt.Errorf("find later changes of %s: %w", g.Name, err)
		}
	}
	return found, nil
}

// laterSets returns the sets of a group's table that may have changed its rows later. It
// leaves out sets in which all rows belong to this deletion. Groups that changed the same
// columns of a table share one query.
func (w *work) laterSets(ctx context.Context, g *restored) ([]*set, error) {
	key := fmt.Sprintf("%d %q", g.Relation, g.Changed)
	if known, read := w.sets[key]; read {
		return known, nil
	}
	first := g.Number
	for _, other := range w.changed {
		if other.Relation == g.Relation {
			first = min(first, other.Number)
		}
	}
	found, err := readLater(ctx, w.tx, w.db, g.Relation, g.Changed, first)
	if err != nil {
		return nil, err
	}
	w.sets[key] = slices.DeleteFunc(found, func(s *set) bool {
		own := w.unit.byNumber[setKey{s.on.Name, s.Number}]
		return own != nil && len(own.owned) == int(own.Rows)
	})
	return w.sets[key], nil
}

// laterIn searches a group of sets for rows with the given keys, and adds the newest row
// of each key to found.
func (w *work) laterIn(ctx context.Context, g *group, keys []string, numbers []int32, found map[int32]laterRow) error {
	columns, key := g.keyForm()
	if key == "" {
		return nil
	}
	sql := fmt.Sprintf(`SELECT given.n, r.ctid FROM %s
JOIN ROWS FROM (pg_catalog.unnest($5::pg_catalog.text[]), pg_catalog.unnest($6::pg_catalog.int4[])) AS given (key, n) ON given.key OPERATOR(pg_catalog.=) %s
WHERE %s`, g.from(columns...), key, inMask)
	var row, at int32
	rows, _ := w.tx.Query(ctx, sql, g.args(upTo(g.rows), keys, numbers)...)
	_, err := pgx.ForEachRow(rows, []any{&row, &at}, func() error {
		s, place := g.locate(at)
		if _, back := slices.BinarySearch(s.Restored, place); back || w.owns(s, place) {
			return nil
		}
		if known, is := found[row]; !is || known.set.Number < s.Number {
			found[row] = laterRow{s, place}
		}
		return nil
	})
	return err //nolint:wrapcheck // later names the table.
}

// owns reports whether a row belongs to the deletion that is being undone. Restore undoes
// the changes of one deletion in order, so they do not block each other.
func (w *work) owns(s *set, row int32) bool {
	own := w.unit.byNumber[setKey{s.on.Name, s.Number}]
	if own == nil {
		return false
	}
	_, found := slices.BinarySearch(own.owned, row)
	return found
}

// keyForm returns the indexes of the primary key's columns in the layout, and an SQL
// expression for the text of a row's key. The expression is empty if the columns are not
// saved.
func (g *group) keyForm() (columns []int, key string) {
	for _, name := range g.KeyCols {
		at := g.column(name)
		if at < 0 || !slices.Contains(g.kept(), at) {
			return nil, ""
		}
		columns = append(columns, at)
	}
	if len(columns) == 0 {
		return nil, ""
	}
	return columns, "ARRAY[" + strings.Join(textExpressions(dml.Qualified("r", g.KeyCols)), ", ") + "]::pg_catalog.text"
}

// rowKeys reads the keys of rows as texts, with the rows' numbers.
func (w *work) rowKeys(ctx context.Context, g *restored, rows []int32) (keys []string, numbers []int32, _ error) {
	columns, key := g.keyForm()
	if key == "" {
		return nil, nil, nil
	}
	var one string
	var number int32
	found, _ := w.tx.Query(ctx, fmt.Sprintf("SELECT %s, r.ctid FROM %s WHERE %s", key, g.from(columns...), inMask),
		g.args(rows)...)
	if _, err := pgx.ForEachRow(found, []any{&one, &number}, func() error {
		keys, numbers = append(keys, one), append(numbers, number)
		return nil
	}); err != nil {
		return nil, nil, fmt.Errorf("read keys of %s: %w", g.Name, err)
	}
	return keys, numbers, nil
}

// undoFirst returns the reason that is reported for a row that cannot be restored before
// the deletion of a later row is undone.
func (e *Engine) undoFirst(ctx context.Context, later laterRow) (string, error) {
	candidates, err := e.roots(ctx, later.set)
	if err != nil {
		return "", err
	}
	if len(candidates) > 1 {
		units, err := e.loadAll(ctx, candidates[:min(len(candidates), mostCandidates)])
		if err != nil {
			return "", err
		}
		for id, u := range units {
			own := u.byNumber[setKey{later.set.on.Name, later.set.Number}]
			if own == nil {
				continue
			}
			if err := e.findOwned(ctx, u); err != nil {
				return "", err
			}
			if _, found := slices.BinarySearch(own.owned, later.row); found {
				return fmt.Sprintf("undo deletion %d first", id), nil
			}
		}
	}
	if len(candidates) == 0 {
		return changedSince, nil // The later deletion was forgotten after its set was read.
	}
	return fmt.Sprintf("undo deletion %d first", candidates[0]), nil
}

// roots returns the IDs of the deletions to which a set may belong.
func (e *Engine) roots(ctx context.Context, s *set) (roots []int64, _ error) {
	if len(s.Origins) == 0 {
		return []int64{s.ID}, nil
	}
	known := map[int64]bool{}
	for next := s.Origins; len(next) > 0; {
		var more []int64
		for _, db := range e.Databases {
			var id int64
			var origins []int64
			rows, _ := db.Pool.Query(ctx, db.Names.Render(text("origins")), next)
			if _, err := pgx.ForEachRow(rows, []any{&id, &origins}, func() error {
				if len(origins) == 0 {
					roots = append(roots, id)
				}
				for _, origin := range origins {
					if !known[origin] {
						known[origin], more = true, append(more, origin)
					}
				}
				return nil
			}); err != nil {
				return nil, fmt.Errorf("database %s: find the deletion of a row: %w", db.Name, err)
			}
		}
		next = more
	}
	slices.Sort(roots)
	return slices.Compact(roots), nil
}
