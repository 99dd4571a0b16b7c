package undo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/pgcatalog"
)

const (
	// mostInCircles is how many rows that refer to each other one transaction restores.
	mostInCircles = 250_000
	// mostRounds is how often those are tried without the ones that have no parent.
	mostRounds = 100
)

// rest are the rows of a set that are neither back nor refused.
func (s *set) rest() []int32 {
	return without(without(s.owned, s.restored), s.refusals())
}

// refusals are the places of all refused rows.
func (s *set) refusals() []int32 {
	return slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(s.refused))...)))
}

// errNone ends a transaction that has restored no circle.
var errNone = errors.New("no row of a circle comes back")

// circles restores the rows of a database that wait for each other: all of them in one transaction, at whose end their parents are looked up.
func (e *Engine) circles(ctx context.Context, u *unit, db database.Database, waiting map[int64]bool, report *Report) error {
	tried, err := e.waitingForEachOther(ctx, u, db)
	if err != nil || len(tried) == 0 {
		return err
	}
	var backs []*back
	left := map[*set]map[string][]int32{} // What an attempt leaves says less.
	defer func() {
		for s := range left {
			s.left = left[s]
		}
	}()
	for _, s := range u.sets {
		if tried[s] == nil {
			continue
		}
		b := &back{set: s}
		if b.shape, err = e.shape(ctx, s); err != nil {
			return err
		}
		if b.final, err = e.missing(ctx, u, s, b.shape, e.silent[s.on.Name]); err != nil {
			return err
		}
		left[s] = s.left
		backs = append(backs, b)
	}
	err = e.transact(ctx, db, func(tx pgx.Tx) error {
		for round := 0; len(tried) > 0 && round < mostRounds; round++ {
			if found, err := e.round(ctx, tx, u, backs, tried); err != nil || found {
				return err
			}
		}
		return errNone
	}, func(tx pgx.Tx) error {
		for _, b := range backs {
			if err := e.mark(ctx, tx, u, b, waiting[b.ID]); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errNone) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, b := range backs {
		report.Restored += int64(len(b.done.places))
	}
	return nil
}

// waitingForEachOther are the rows that have no parent yet, with the rows of the tables that they refer to.
func (e *Engine) waitingForEachOther(ctx context.Context, u *unit, db database.Database) (map[*set][]int32, error) {
	shapes, tables, wanted := map[*set]*shape{}, map[uint32][]*set{}, map[*set]bool{}
	var next []*set
	for _, s := range u.sets {
		f, err := e.shape(ctx, s)
		if err != nil {
			return nil, err
		}
		if s.on.Name != db.Name || f == nil || len(s.Changed) > 0 || len(s.rest()) == 0 {
			continue
		}
		shapes[s], tables[f.OID] = f, append(tables[f.OID], s)
		if len(s.left) > 0 {
			next = append(next, s)
		}
	}
	for len(next) > 0 {
		s := next[0]
		if next = next[1:]; wanted[s] || shapes[s] == nil {
			continue
		}
		wanted[s] = true
		for _, id := range s.Origins {
			next = append(next, s.above(u, id)...)
		}
		checks, err := e.missing(ctx, u, s, shapes[s], e.silent[s.on.Name])
		if err != nil {
			return nil, err
		}
		for _, c := range checks {
			next = append(next, tables[c.other]...)
		}
	}
	rows, tried := 0, map[*set][]int32{}
	for s := range wanted {
		tried[s] = s.rest()
		rows += len(tried[s])
	}
	if rows > mostInCircles {
		return nil, nil
	}
	return tried, e.prune(ctx, u, tried)
}

// prune takes the rows out whose own parents are neither back nor tried.
func (e *Engine) prune(ctx context.Context, u *unit, tried map[*set][]int32) error {
	for _, s := range u.sets {
		if tried[s] == nil {
			continue
		}
		may, err := e.below(ctx, u, s, func(above *set) []int32 {
			return both(above.restored, tried[above])
		})
		if err != nil {
			return err
		}
		tried[s] = without(tried[s], without(tried[s], may))
		if len(tried[s]) == 0 {
			delete(tried, s)
		}
	}
	return nil
}

// round puts all tried rows back. Where some have no parent, it takes all back again, and leaves fewer to be tried.
func (e *Engine) round(ctx context.Context, tx pgx.Tx, u *unit, backs []*back, tried map[*set][]int32) (good bool, _ error) {
	if _, err := tx.Exec(ctx, "SAVEPOINT circle; SET CONSTRAINTS ALL DEFERRED"); err != nil {
		return false, fmt.Errorf("set savepoint: %w", err)
	}
	good = true
	drop := func(b *back, lacking []int32) {
		if len(lacking) > 0 {
			good, tried[b.set] = false, without(tried[b.set], lacking)
		}
	}
	for _, b := range backs {
		b.left, b.done, b.parts = map[string][]int32{}, came{}, slices.Collect(slices.Chunk(tried[b.set], rowsAtOnce))
		for len(b.parts) > 0 {
			if err := e.keep(ctx); err != nil {
				return false, err
			}
			if err := b.restore(ctx, tx); err != nil {
				return false, err
			}
		}
		drop(b, without(tried[b.set], slices.Sorted(slices.Values(b.done.places))))
	}
	for _, b := range backs {
		for i := range b.final {
			lacking, err := b.lacking(ctx, tx, b.final[i], b.done)
			if err != nil {
				return false, err
			}
			drop(b, lacking)
		}
	}
	if good {
		_, err := tx.Exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE")
		if strings.HasPrefix(pgcatalog.SQLState(err), "23") {
			good = false
			clear(tried) // The server does not say which rows it does not want.
		} else if err != nil {
			return false, fmt.Errorf("check constraints: %w", err)
		}
	}
	if good {
		return true, nil
	}
	if _, err := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT circle"); err != nil {
		return false, fmt.Errorf("take rows back: %w", err)
	}
	return false, e.prune(ctx, u, tried)
}
