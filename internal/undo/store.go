package undo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
)

//go:embed queries
var files embed.FS

// text is the statement of a file. As parts of the program they are never missing.
func text(name string) string {
	data, _ := files.ReadFile("queries/" + name + ".sql")
	return string(data)
}

// ErrUnknown says that no deletion of the number is kept.
var ErrUnknown = errors.New("no deletion of this number is kept")

// Engine works on the deletions that a group of databases keeps.
type Engine struct {
	Databases []database.Database
	// Parents are those of the definitions, by database.
	Parents map[string][]*loosefk.Parent
	// Keep is how long deletions are kept, and FireTriggers has the application's triggers fire.
	Keep         time.Duration
	FireTriggers bool
	// Exclude are the columns that are not kept.
	Exclude []string
	// Leases grants the leases of the queues, whose keys Key names.
	Leases                        *lease.Manager
	Key                           func(database string) string
	StatementTimeout, LockTimeout time.Duration
	// Reached, if set, is called between two transactions; its error ends the work.
	Reached func(point string) error

	leases  []*lease.Lease
	renewed time.Time
	silent  map[string]bool
	// shapes are tables as they are, operators those of databases, read once while they are.
	shapes    map[shapeKey]*shape
	operators map[string]*pgcatalog.Operators
}

// layout is a row of sexton.undo_layouts.
type layout struct {
	ID                            int64
	Relation                      uint32
	Name                          string
	Columns                       []string
	Numbers                       []int16
	Types, Arrays, Terms, KeyCols []string
	Cascades                      []cascade
}

// cascade is a native foreign key by which rows went with others.
type cascade struct {
	Parent    uint32
	Via, Keys []string
}

// set is a row of sexton.undo without its rows.
type set struct {
	layout

	Number, ID int64
	Rows, Left int32
	Kept       bool
	KeptAt     time.Time
	Origins    []int64
	// Via are the columns by which rows referred to their parents, Keys the parents' own.
	Via, Keys []string
	// Parent is their table, root the partitioned one above that now, or 0.
	Parent, root uint32
	// Fields are the kept columns of changed rows, Changed the ones that were set to Written.
	Fields, Changed []string
	Written         *string
	Actor           string

	on database.Database
	// owned are the places of the unit's rows, restored the ones that are back. The others are orphaned where their parents are not, and left or refused
	// for a reason; refused ones are not tried again.
	owned, restored, orphaned []int32
	left, refused             map[string][]int32
	// known says that rows were back before this call.
	known bool
	// others are sets of the same layout that are restored with it.
	others []*set
	// stopped says that the clean-up after restored parents has been ended.
	stopped bool
	// followers are the later links of the chains that changed rows are in, by their places.
	followers map[int32][]follower
	// skip is how many parameters of a statement stand before the set's.
	skip int
	// untold says that the columns Via were excluded, where not all rows are the unit's.
	untold bool
}

// read reads the sets of a database that one of ids caused, with roots those of ids, too, or those of a table behind a number: deleted rows, and the changes of
// columns. Within a transaction it is the one to read: another connection would have that one idle for too long.
func read(ctx context.Context, by dbsqlc.DBTX, db database.Database, ids []int64, roots bool, table uint32, columns []string, behind int64) ([]*set, error) {
	rows, _ := by.Query(ctx, db.Names.Render(text("sets")), ids, roots, table, columns, behind)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*set, error) {
		s := &set{on: db}
		return s, row.Scan(&s.Number, &s.ID, &s.Rows, &s.Left, &s.Kept, &s.KeptAt, &s.Origins, &s.Via, &s.Keys, &s.Fields, &s.Changed, &s.Written, &s.Actor,
			&s.layout.ID, &s.Relation, &s.Name, &s.Columns, &s.Numbers, &s.Types, &s.Arrays, &s.Terms, &s.KeyCols, &s.Cascades, &s.Parent, &s.root)
	})
}

// along reports whether a trigger kept the set within a batch: its rows went with those of the batch's own set.
func (s *set) along() bool { return slices.Contains(s.Origins, s.ID) }

// place is where a set is.
type place struct {
	database string
	number   int64
}

// load reads a unit and what of it is back.
func (e *Engine) load(ctx context.Context, id int64) (*unit, error) {
	units, err := e.loadAll(ctx, []int64{id})
	if err == nil && units[id] == nil {
		err = fmt.Errorf("deletion %d: %w", id, ErrUnknown)
	}
	return units[id], err
}

// loadAll reads units, and the sets that they share once: one by one, a long list would read them as often as it has lines.
func (e *Engine) loadAll(ctx context.Context, of []int64) (map[int64]*unit, error) {
	e.shapes, e.operators = map[shapeKey]*shape{}, map[string]*pgcatalog.Operators{} // Tables may have changed since.
	seen, kept := map[place]bool{}, family{roots: map[int64][]*set{}, below: map[int64][]*set{}}
	for next, roots := of, true; len(next) > 0; roots = false {
		var found []int64
		for _, db := range e.Databases {
			if err := e.keep(ctx); err != nil {
				return nil, err
			}
			sets, err := read(ctx, db.Pool, db, next, roots, 0, nil, 0)
			if err != nil {
				return nil, fmt.Errorf("database %s: read what is kept: %w", db.Name, err)
			}
			for _, s := range sets {
				if at := (place{db.Name, s.Number}); !seen[at] {
					seen[at] = true
					kept.add(s)
					found = append(found, s.ID)
				}
			}
		}
		slices.Sort(found)
		if next = slices.Compact(found); len(e.Databases) == 1 {
			break // All of it was there to be found.
		}
	}
	units := map[int64]*unit{}
	for _, id := range of {
		if u := kept.unit(id); u != nil {
			units[id] = u
		}
	}
	for _, db := range e.Databases {
		rows, _ := db.Pool.Query(ctx, db.Names.Render(text("marks")), of)
		var id, number int64
		var restored []int32
		if _, err := pgx.ForEachRow(rows, []any{&id, &number, &restored}, func() error {
			if u := units[id]; u != nil && u.at[place{db.Name, number}] != nil {
				s := u.at[place{db.Name, number}]
				s.restored, s.known = slices.Clone(restored), true
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("database %s: read what is restored: %w", db.Name, err)
		}
	}
	return units, nil
}

// own finds the rows of each set that belong to the unit.
func (e *Engine) own(ctx context.Context, u *unit) (err error) {
	if err := e.alone(ctx, u); err != nil {
		return err
	}
	for _, s := range u.sets {
		if err := e.keep(ctx); err != nil {
			return err
		}
		if s.owned, err = e.members(ctx, u, s, func(above *set) []int32 { return above.owned }); err != nil {
			return err
		}
	}
	return nil
}

// below are the rows of a set whose parents are among certain ones, or live: one that was put back by hand under its key does.
func (e *Engine) below(ctx context.Context, u *unit, s *set, of func(above *set) []int32) ([]int32, error) {
	with := func(above *set) []int32 {
		if alive := above.refused[keyTaken]; len(alive) > 0 && slices.Equal(s.Keys, above.KeyCols) {
			return both(of(above), alive)
		}
		return of(above)
	}
	behind := func(above *set) bool { return len(with(above)) < len(above.owned) }
	if !slices.ContainsFunc(s.Origins, func(id int64) bool { return slices.ContainsFunc(s.above(u, id), behind) }) {
		return s.owned, nil
	}
	return e.members(ctx, u, s, with)
}

// members are the places of those rows of a set that referred to certain rows of the sets above.
func (e *Engine) members(ctx context.Context, u *unit, s *set, of func(*set) []int32) ([]int32, error) {
	if !s.Kept || s.Rows == 0 {
		return nil, nil
	}
	if s.ID == u.id {
		return upTo(s.Rows), nil
	}
	whole, some := true, false
	for _, id := range s.Origins {
		if len(u.by[id]) == 0 {
			whole = false // Another unit's.
		}
		for _, above := range s.above(u, id) {
			places := of(above)
			whole, some = whole && above.Left == 0 && len(places) == int(above.Rows), some || len(places) > 0
		}
	}
	switch {
	case !some:
		return nil, nil
	case whole:
		return upTo(s.Rows), nil
	case s.along() && len(s.Changed) == 0:
		return e.taken(ctx, u, s, of)
	}
	keys := make([][]*string, len(s.Keys))
	for _, id := range s.Origins {
		for _, above := range s.above(u, id) {
			if places := of(above); len(places) > 0 {
				if err := e.keysOf(ctx, above, s.Keys, places, keys); err != nil {
					return nil, err
				}
			}
		}
	}
	return e.referring(ctx, u, s, keys)
}

// above are the sets of one origin that the rows of a set may have referred to.
func (s *set) above(u *unit, id int64) []*set {
	var found []*set
	for _, above := range u.by[id] {
		// Of one batch, what triggers kept comes of its own set.
		beside := id == s.ID && len(s.Changed) == 0 && above.along()
		if len(above.Changed) == 0 && !beside && (above.Relation == s.Parent || above.Relation == s.root || s.Parent == 0) {
			found = append(found, above)
		}
	}
	return found
}

// taken are the places of a set's rows that native foreign keys took along, over any number of them, with certain rows of their batch.
func (e *Engine) taken(ctx context.Context, u *unit, s *set, of func(*set) []int32) ([]int32, error) {
	known := map[*set][]int32{}
	for grew := true; grew; {
		grew = false
		for _, below := range u.by[s.ID] {
			if !below.along() || len(below.Changed) > 0 || !below.Kept {
				continue
			}
			for _, by := range below.Cascades {
				keys := make([][]*string, len(by.Keys))
				for _, above := range u.by[s.ID] {
					places := known[above]
					if !above.along() {
						places = of(above)
					}
					if above.Relation != by.Parent || len(above.Changed) > 0 || len(places) == 0 {
						continue
					}
					if err := e.keysOf(ctx, above, by.Keys, places, keys); err != nil {
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
				below.untold = below.untold || one.untold
				if more := without(found, known[below]); len(more) > 0 {
					known[below], grew = both(known[below], more), true
				}
			}
		}
	}
	return known[s], nil
}

func upTo(n int32) []int32 {
	places := make([]int32, n)
	for i := range places {
		places[i] = int32(i) + 1
	}
	return places
}
