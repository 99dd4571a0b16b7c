package undo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
)

// ErrUnknown reports that no deletion with the given number is saved.
var ErrUnknown = errors.New("no deletion with this number is kept")

// ErrTwice reports that two databases hold deletions with the same IDs, because one is a
// copy of the other.
var ErrTwice = errors.New("two databases keep deletions with the same numbers, because one is a copy of the other; " +
	`use a configuration with one of them, and set other numbers in the copy with ALTER SEQUENCE "sexton".undo_ids RESTART WITH …`)

// layout is a row of sexton.undo_layouts. It holds the columns that a table had when its
// rows were saved.
type layout struct {
	ID                            int64
	Relation                      uint32
	Name                          string
	Columns                       []string
	Numbers                       []int16
	Types, Arrays, Terms, KeyCols []string
	Cascades                      []cascade
}

// cascade is a native foreign key by which rows were deleted together with the rows that
// they referred to.
type cascade struct {
	Parent    uint32
	Via, Keys []string
}

// set is a row of sexton.undo, which holds the rows that one statement deleted or
// changed.
type set struct {
	layout

	Number, ID int64
	// Rows counts the saved rows. Left counts the rows that were not saved.
	Rows, Left int32
	Kept       bool
	KeptAt     time.Time
	Origins    []int64
	// Via are the columns by which the rows referred to their parents. Keys are the
	// referenced columns.
	Via, Keys []string
	// Parent is the OID of the table that the rows referred to. Root is the OID of the
	// partitioned table if Parent is a partition, and otherwise 0.
	Parent, Root uint32
	// Fields are the saved columns of changed rows. Changed are the columns that the
	// statement set. Written is the value that the statement wrote into Changed.
	Fields, Changed []string
	Written         *string
	Actor           string
	// Restored are the rows that an undo has restored.
	Restored []int32

	on database.Database
	// owned are the rows that belong to the deletion. Rows are numbered from 1.
	owned []int32
	// viaExcluded reports that the columns Via are not saved, so the owned rows cannot be
	// found.
	viaExcluded bool
	// present are the owned rows that exist in the database after the restoring
	// transaction.
	present []int32
}

// keptByTrigger reports whether a trigger saved the set while a batch ran. Such a set has
// the same ID as the batch's own set. That ID is also one of its origins.
func (s *set) keptByTrigger() bool { return slices.Contains(s.Origins, s.ID) }

// changes reports whether the rows were changed instead of deleted.
func (s *set) changes() bool { return len(s.Changed) > 0 }

// kept returns the saved columns of the set, as indexes in the layout.
func (s *set) kept() []int {
	var columns []int
	if len(s.Fields) == 0 {
		for i := range s.Columns {
			columns = append(columns, i)
		}
	}
	for _, field := range s.Fields {
		columns = append(columns, s.column(field))
	}
	return columns
}

// column returns the index of a column in the layout, or -1 if the layout does not have
// it.
func (s *set) column(name string) int { return slices.Index(s.Columns, name) }

// read returns the sets of a database that the sets ids caused, directly or indirectly.
// If roots is true, it also returns those of the sets ids that no other set caused.
func read(ctx context.Context, on dbsqlc.DBTX, db database.Database, ids []int64, roots bool) ([]*set, error) {
	rows, _ := on.Query(ctx, db.Names.Render(text("sets")), ids, roots, 0, nil, 0)
	return collect(rows, db)
}

// readLater returns the sets of a table that were saved after the set number and have
// deleted rows, or changes of some of the columns.
func readLater(ctx context.Context, on dbsqlc.DBTX, db database.Database, table uint32, columns []string,
	number int64,
) ([]*set, error) {
	rows, _ := on.Query(ctx, db.Names.Render(text("sets")), nil, false, table, columns, number)
	return collect(rows, db)
}

func collect(rows pgx.Rows, db database.Database) ([]*set, error) {
	sets, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*set, error) {
		s := &set{on: db}
		return s, row.Scan(&s.Number, &s.ID, &s.Rows, &s.Left, &s.Kept, &s.KeptAt, &s.Origins, &s.Via, &s.Keys,
			&s.Fields, &s.Changed, &s.Written, &s.Actor,
			&s.Restored, &s.layout.ID, &s.Relation, &s.Name, &s.Columns, &s.Numbers, &s.Types, &s.Arrays, &s.Terms,
			&s.KeyCols, &s.Cascades, &s.Parent, &s.Root)
	})
	if err != nil {
		return nil, fmt.Errorf("database %s: read kept rows: %w", db.Name, err)
	}
	return sets, nil
}

// unit is a deletion with all sets that it caused, parents before children.
type unit struct {
	id       int64
	sets     []*set
	byID     map[int64][]*set
	byNumber map[setKey]*set
}

// setKey identifies a set, because numbers are unique only within a database.
type setKey struct {
	database string
	number   int64
}

// load reads a deletion and finds the rows of each set that belong to it.
func (e *Engine) load(ctx context.Context, id int64) (*unit, error) {
	units, err := e.loadAll(ctx, []int64{id})
	if err == nil && units[id] == nil {
		err = fmt.Errorf("deletion %d: %w", id, ErrUnknown)
	}
	if err == nil {
		err = e.findOwned(ctx, units[id])
	}
	return units[id], err
}

// loadAll reads deletions. It reads a set only once, even if several deletions share it.
func (e *Engine) loadAll(ctx context.Context, of []int64) (map[int64]*unit, error) {
	seen, roots, below := map[setKey]bool{}, map[int64][]*set{}, map[int64][]*set{}
	for next, first := of, true; len(next) > 0; first = false {
		var found []int64
		for _, db := range e.Databases {
			if err := e.renew(ctx); err != nil {
				return nil, err
			}
			sets, err := read(ctx, db.Pool, db, next, first)
			if err != nil {
				return nil, err
			}
			for _, s := range sets {
				at := setKey{db.Name, s.Number}
				if seen[at] {
					continue
				}
				seen[at], found = true, append(found, s.ID)
				slices.Sort(s.Origins)
				for _, origin := range s.Origins {
					below[origin] = append(below[origin], s)
				}
				if len(s.Origins) == 0 {
					roots[s.ID] = append(roots[s.ID], s)
				}
			}
		}
		slices.Sort(found)
		if next = slices.Compact(found); len(e.Databases) == 1 {
			break // In a single database, the query has already followed all origins.
		}
	}
	units := map[int64]*unit{}
	for _, id := range of {
		if len(roots[id]) > 0 {
			units[id] = newUnit(id, roots[id], below)
		}
	}
	return units, nil
}

// newUnit collects the sets of a deletion. It copies them, because several deletions may
// share a set and own different rows of it.
func newUnit(id int64, roots []*set, below map[int64][]*set) *unit {
	u := &unit{id: id, byID: map[int64][]*set{}, byNumber: map[setKey]*set{}}
	add := func(s *set) bool {
		at := setKey{s.on.Name, s.Number}
		if u.byNumber[at] != nil {
			return false
		}
		one := *s
		u.byNumber[at], u.sets, u.byID[s.ID] = &one, append(u.sets, &one), append(u.byID[s.ID], &one)
		return true
	}
	for _, s := range roots {
		add(s)
	}
	for next, known := []int64{id}, map[int64]bool{}; len(next) > 0; next = next[1:] {
		if known[next[0]] {
			continue
		}
		known[next[0]] = true
		for _, s := range below[next[0]] {
			if add(s) {
				next = append(next, s.ID)
			}
		}
	}
	u.sort()
	return u
}

// sort sorts each set after the sets that caused it. Definitions may form a cycle, but
// sets cannot, because the cause of a set is always older than the set.
func (u *unit) sort() {
	kind := func(s *set) int { return 2*min(1, len(s.Fields)) + min(1, len(s.Via)) }
	slices.SortFunc(u.sets, func(a, b *set) int {
		return cmp.Or(cmp.Compare(kind(a), kind(b)), a.KeptAt.Compare(b.KeptAt), cmp.Compare(a.Number, b.Number))
	})
	sorted, done, ids := make([]*set, 0, len(u.sets)), map[*set]bool{}, slices.Sorted(maps.Keys(u.byID))
	var add func(s *set)
	add = func(s *set) {
		if done[s] {
			return
		}
		done[s] = true
		for _, id := range u.causes(s, ids) {
			for _, above := range u.byID[id] {
				add(above)
			}
		}
		for _, by := range s.Cascades {
			for _, above := range u.byID[s.ID] {
				// The batch's own set comes first, because cascades from its rows deleted
				// the rows of the batch's other sets.
				if above.Relation == by.Parent && (s.keptByTrigger() || len(s.Origins) == 0) {
					add(above)
				}
			}
		}
		sorted = append(sorted, s)
	}
	for _, s := range u.sets {
		add(s)
	}
	// Sets of changed rows come last. A row may have been deleted after its change, so it
	// must be inserted before its change is undone.
	slices.SortStableFunc(sorted, func(a, b *set) int {
		return cmp.Compare(min(1, len(a.Changed)),
			min(1, len(b.Changed)))
	})
	u.sets = sorted
}

// causes returns the origins of a set, including all that belong to the deletion. A batch
// may have thousands of origins. causes then returns only those with IDs of the deletion.
func (u *unit) causes(s *set, ids []int64) []int64 {
	if len(s.Origins) <= len(ids) {
		return s.Origins
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id int64) bool {
		_, found := slices.BinarySearch(s.Origins, id)
		return !found
	})
}

// above returns the sets with the given ID that may hold rows to which rows of s
// referred.
func (u *unit) above(s *set, id int64) []*set {
	var found []*set
	for _, above := range u.byID[id] {
		// Sets that triggers saved during a batch have the ID of the batch's own set,
		// which caused them.
		sibling := id == s.ID && !s.changes() && above.keptByTrigger()
		if !above.changes() && !sibling && (above.Relation == s.Parent || above.Relation == s.Root || s.Parent == 0) {
			found = append(found, above)
		}
	}
	return found
}

// findOwned finds the rows of each set that belong to the deletion.
func (e *Engine) findOwned(ctx context.Context, u *unit) (err error) {
	if err := e.checkUnique(ctx, u); err != nil {
		return err
	}
	for _, s := range u.sets {
		if err := e.renew(ctx); err != nil {
			return err
		}
		if s.owned, err = e.members(ctx, u, s, func(above *set) []int32 { return above.owned }); err != nil {
			return err
		}
	}
	return nil
}

// checkUnique returns ErrTwice if another database has a set with the same ID, because
// origins refer to sets of other databases by ID.
func (e *Engine) checkUnique(ctx context.Context, u *unit) error {
	if len(e.Databases) == 1 {
		return nil
	}
	ids := slices.Collect(maps.Keys(u.byID))
	for _, db := range e.Databases {
		rows, _ := db.Pool.Query(ctx, db.Names.Render(text("present")), ids)
		found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return fmt.Errorf("database %s: find sets with the same numbers: %w", db.Name, err)
		}
		for _, id := range found {
			if first := u.byID[id][0].on.Name; first != db.Name {
				return fmt.Errorf("deletion %d, databases %s and %s: %w", u.id, first, db.Name, ErrTwice)
			}
		}
	}
	return nil
}

// members returns the rows of s that belong to the deletion: those that referred to its
// rows in the sets that caused s. The function of returns the deletion's rows in such a
// set.
func (e *Engine) members(ctx context.Context, u *unit, s *set, of func(*set) []int32) ([]int32, error) {
	if !s.Kept || s.Rows == 0 {
		return nil, nil
	}
	if s.ID == u.id {
		return upTo(s.Rows), nil
	}
	all, some := true, false
	for _, id := range s.Origins {
		all = all && len(u.byID[id]) > 0 // An origin that the unit does not contain belongs to another deletion.
		for _, above := range u.above(s, id) {
			rows := of(above)
			all, some = all && above.Left == 0 && len(rows) == int(above.Rows), some || len(rows) > 0
		}
	}
	switch {
	case !some:
		return nil, nil
	case all:
		return upTo(s.Rows), nil
	case s.keptByTrigger() && !s.changes():
		return e.cascaded(ctx, u, s, of)
	}
	keys := make([][]*string, len(s.Keys))
	for _, id := range s.Origins {
		for _, above := range u.above(s, id) {
			if rows := of(above); len(rows) > 0 {
				if err := e.keysOf(ctx, groupOf(above), s.Keys, rows, keys); err != nil {
					return nil, err
				}
			}
		}
	}
	return e.referring(ctx, u, s, keys)
}

// cascaded returns the rows of a set that native foreign keys deleted, directly or
// indirectly, when the batch deleted rows of its own sets. The function of returns the
// rows of the deletion in one of those own sets.
func (e *Engine) cascaded(ctx context.Context, u *unit, s *set, of func(*set) []int32) ([]int32, error) {
	known := map[*set][]int32{}
	for grew := true; grew; {
		grew = false
		for _, below := range u.byID[s.ID] {
			if !below.keptByTrigger() || below.changes() || !below.Kept {
				continue
			}
			for _, by := range below.Cascades {
				keys := make([][]*string, len(by.Keys))
				for _, above := range u.byID[s.ID] {
					rows := known[above]
					if !above.keptByTrigger() {
						rows = of(above)
					}
					if above.Relation != by.Parent || above.changes() || len(rows) == 0 {
						continue
					}
					if err := e.keysOf(ctx, groupOf(above), by.Keys, rows, keys); err != nil {
						return nil, err
					}
				}
				if len(keys[0]) == 0 {
					continue
				}
				one := *below
				one.Via, one.Keys = by.Via, by.Keys
				found, err := e.referring(ctx, u, &one, keys)
				if err != nil {
					return nil, err
				}
				below.viaExcluded = below.viaExcluded || one.viaExcluded
				if more := without(found, known[below]); len(more) > 0 {
					known[below], grew = union(known[below], more), true
				}
			}
		}
	}
	return known[s], nil
}

// upTo returns the numbers from 1 to n.
func upTo(n int32) []int32 {
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(i) + 1
	}
	return rows
}

// without returns the rows that are not excluded. Both lists must be sorted.
func without(rows, excluded []int32) []int32 {
	var left []int32
	for _, row := range rows {
		if _, found := slices.BinarySearch(excluded, row); !found {
			left = append(left, row)
		}
	}
	return left
}

// union returns the distinct rows of two lists, sorted.
func union(rows, others []int32) []int32 {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(rows, others))))
}

// restored returns the owned rows that an undo has restored.
func (s *set) restored() []int32 { return without(s.owned, without(s.owned, s.Restored)) }
