package undo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain"
	"sexton/internal/pgcatalog"
)

// link is a row with the text form of a key: the one that it has, or that of a parent that it lacks today, empty where none will do.
type link struct {
	place int32
	key   string
	what  string
}

// foretell finds the rows that would stay, as a parent neither is there nor would come back with them.
func (e *Engine) foretell(ctx context.Context, u *unit, report *Report) error {
	coming, lacks, offers, asked := map[*set][]int32{}, map[*set][]link{}, map[*set][]link{}, map[string]bool{}
	for _, s := range u.sets {
		f, err := e.shape(ctx, s)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		if coming[s] = s.rest(); len(coming[s]) == 0 {
			continue
		}
		checks, err := e.missing(ctx, u, s, f, true)
		if err != nil {
			return err
		}
		for _, c := range checks {
			if c.deleted {
				continue // Its own parents.
			}
			from, known := s.foreseen(f, c.columns)
			if !known || c.source != f.Name {
				report.notef("checked once rows of %s come back: %s", s.Name, c.what)
				continue
			}
			sql := fmt.Sprintf("SELECT r.ctid, CASE WHEN %s THEN ARRAY[%s]::pg_catalog.text END FROM %s WHERE %s OR %s AND %s",
				c.refers(), strings.Join(forms(c.given), ", "), from, c.partly(), c.refers(), c.missing(false))
			target := fmt.Sprint(s.on.Name, c.other, c.others)
			found, err := e.links(ctx, s, sql, target, c.args.Values[3:])
			if err != nil {
				return err
			}
			for i := range found {
				found[i].what = c.what
			}
			if lacks[s] = append(lacks[s], found...); asked[target] || len(found) == 0 {
				continue
			}
			asked[target] = true
			if err := e.offers(ctx, u, s.on.Name, c, target, offers); err != nil {
				return err
			}
		}
	}
	return e.settle(ctx, u, coming, lacks, offers, report)
}

// foreseen are the rows at the places $3 as they would be, called r, with those columns. It reports whether all of them are kept.
func (s *set) foreseen(f *shape, columns []string) (string, bool) {
	at, values := make([]int, len(columns)), make([]string, len(columns))
	for i, column := range columns {
		if at[i] = f.former(&s.layout, column); at[i] < 0 || !slices.Contains(s.kept(), at[i]) {
			return "", false
		}
		values[i] = s.value(at[i], f.kind(column)) + " AS " + pgcatalog.Quote(column)
	}
	return fmt.Sprintf("(SELECT r.ctid, %s FROM %s WHERE %s) AS r", strings.Join(values, ", "), s.rows(at...), among), true
}

// links reads the places of rows with their keys.
func (e *Engine) links(ctx context.Context, s *set, sql, target string, args []any) (found []link, err error) {
	err = e.within(ctx, s.on, func(tx pgx.Tx) error {
		var place int32
		var key *string
		rows, _ := tx.Query(ctx, sql, append(s.args(s.mask(s.rest())), args...)...)
		if _, err := pgx.ForEachRow(rows, []any{&place, &key}, func() error {
			one := link{place: place}
			if key != nil {
				one.key = target + *key
			}
			found = append(found, one)
			return nil
		}); err != nil {
			return fmt.Errorf("look for the parents of %s: %w", s.Name, err)
		}
		return nil
	})
	return found, err
}

// offers reads the keys of the rows that would be parents by a check.
func (e *Engine) offers(ctx context.Context, u *unit, database string, c check, target string, offers map[*set][]link) error {
	for _, s := range u.sets {
		f, err := e.shape(ctx, s)
		if err != nil {
			return err
		}
		if f == nil || f.OID != c.other || s.on.Name != database || len(s.Changed) > 0 {
			continue
		}
		from, known := s.foreseen(f, c.others)
		if !known {
			continue
		}
		names := drain.Qualified("r", c.others)
		found, err := e.links(ctx, s, fmt.Sprintf("SELECT r.ctid, ARRAY[%s]::pg_catalog.text FROM %s", strings.Join(forms(names), ", "), from), target, nil)
		if err != nil {
			return err
		}
		offers[s] = append(offers[s], found...)
	}
	return nil
}

// settle leaves out rows without parents until all the others have theirs: rows that refer to each other in a circle come back together.
func (e *Engine) settle(ctx context.Context, u *unit, coming map[*set][]int32, lacks, offers map[*set][]link, report *Report) error {
	for _, s := range u.sets {
		if coming[s] != nil {
			s.left = map[string][]int32{}
		}
	}
	for dropped := true; dropped; {
		dropped = false
		present := map[string]bool{}
		for s, keys := range offers {
			for _, one := range keys {
				if _, comes := slices.BinarySearch(coming[s], one.place); comes {
					present[one.key] = true
				}
			}
		}
		for _, s := range u.sets {
			var lacking []int32
			for _, one := range lacks[s] {
				at, found := slices.BinarySearch(lacking, one.place)
				if _, comes := slices.BinarySearch(coming[s], one.place); comes && !found && !present[one.key] {
					s.left[one.what], lacking = append(s.left[one.what], one.place), slices.Insert(lacking, at, one.place)
				}
			}
			coming[s], dropped = without(coming[s], lacking), dropped || len(lacking) > 0
			may, err := e.below(ctx, u, s, func(above *set) []int32 {
				return both(above.restored, coming[above])
			})
			if err != nil {
				return err
			}
			orphaned := without(coming[s], may)
			s.orphaned = both(s.orphaned, orphaned)
			coming[s], dropped = without(coming[s], orphaned), dropped || len(orphaned) > 0
		}
	}
	report.Restored = 0
	for _, places := range coming {
		report.Restored += int64(len(places))
	}
	return nil
}
