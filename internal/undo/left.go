package undo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

// mostLeft is how many rows that stay are named.
const mostLeft = 10_000

// Left is a row that was not restored.
type Left struct {
	Database string `json:"database"`
	Table    string `json:"table"`
	Key      string `json:"key"`
	Reason   string `json:"reason"`
}

// keyTaken is the reason that is looked for before all others.
const keyTaken = "its primary key is taken"

// foresee counts the rows that would come back, and refuses those whose primary key is taken.
func (e *Engine) foresee(ctx context.Context, s *set, f *shape, wanted []int32, report *Report) error {
	report.Restored += int64(len(wanted))
	if len(s.Changed) > 0 {
		return nil
	}
	return e.within(ctx, s.on, func(tx pgx.Tx) error {
		taken, err := s.taken(ctx, tx, f, wanted)
		report.Restored -= int64(len(taken))
		s.refuse(keyTaken, taken)
		return err
	})
}

// taken are the places of rows whose primary key is taken.
func (s *set) taken(ctx context.Context, db dbsqlc.DBTX, f *shape, places []int32) ([]int32, error) {
	columns, terms := s.byKey(f, "other")
	if len(terms) == 0 {
		return nil, nil
	}
	sql := fmt.Sprintf("SELECT r.ctid FROM %s WHERE %s AND EXISTS (SELECT FROM %s AS other WHERE %s) ORDER BY 1",
		s.rows(columns...), among, f.Name, strings.Join(terms, " AND "))
	rows, _ := db.Query(ctx, sql, s.args(s.mask(places))...)
	taken, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	return taken, problem.Doing(err, "look for keys that are taken")
}

// leaveAll names all rows that are not restored.
func (e *Engine) leaveAll(ctx context.Context, u *unit, report *Report) error {
	for _, s := range u.sets {
		refusals := s.refusals()
		for reason, places := range s.left {
			s.left[reason] = without(slices.Sorted(slices.Values(places)), refusals)
		}
		var places []int32
		var reasons []string
		add := func(reason string, of []int32) {
			report.LeftRows += int64(len(of))
			named := slices.Sorted(slices.Values(of))[:min(len(of), mostLeft-len(report.Left)-len(places))]
			places, reasons = append(places, named...), append(reasons, slices.Repeat([]string{reason}, len(named))...)
		}
		add("its parent was not restored", without(s.orphaned, refusals))
		for _, by := range []map[string][]int32{s.refused, s.left} {
			for _, reason := range slices.Sorted(maps.Keys(by)) {
				add(reason, by[reason])
			}
		}
		keys, sorted := make([][]*string, len(s.KeyCols)), slices.Sorted(slices.Values(places))
		if len(keys) > 0 && len(places) > 0 {
			if err := e.keysOf(ctx, s, s.KeyCols, sorted, keys); err != nil {
				return err
			}
		}
		shown := joined(keys)
		for i, place := range places {
			left := Left{Database: s.on.Name, Table: s.Name, Reason: reasons[i], Key: fmt.Sprintf("row %d of %d", place, s.Number)}
			if at, _ := slices.BinarySearch(sorted, place); at < len(shown) {
				left.Key = shown[at]
			}
			report.Left = append(report.Left, left)
		}
	}
	return nil
}
