package undo

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
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
	// Leases grants the leases of the queues, whose keys Key names.
	Leases                        *lease.Manager
	Key                           func(database string) string
	StatementTimeout, LockTimeout time.Duration
	// Reached, if set, is called between two transactions; its error ends the work.
	Reached func(point string) error

	leases  []*lease.Lease
	renewed time.Time
	silent  map[string]bool
	shapes  map[shapeKey]*shape
}

// layout is a row of sexton.undo_layouts.
type layout struct {
	ID                            int64
	Relation                      uint32
	Name                          string
	Columns                       []string
	Numbers                       []int16
	Types, Arrays, Terms, KeyCols []string
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
	// Fields are the kept columns of changed rows, Changed the ones that were set to Written.
	Fields, Changed []string
	Written         *string
	Actor           string

	on database.Database
	// owned are the places of the unit's rows, restored the ones that are back.
	owned, restored []int32
	// untold says that the columns Via were excluded, where not all rows are the unit's.
	untold bool
}

// unit is a deletion with all that it caused, parents before children.
type unit struct {
	id   int64
	sets []*set
	by   map[int64][]*set
}

func (e *Engine) read(ctx context.Context, db database.Database, ids []int64, roots bool) (found []*set, err error) {
	rows, _ := db.Pool.Query(ctx, db.Names.Render(text("sets")), ids, roots)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*set, error) {
		s := &set{on: db}
		return s, row.Scan(&s.Number, &s.ID, &s.Rows, &s.Left, &s.Kept, &s.KeptAt, &s.Origins, &s.Via, &s.Keys, &s.Fields, &s.Changed, &s.Written, &s.Actor,
			&s.layout.ID, &s.Relation, &s.Name, &s.Columns, &s.Numbers, &s.Types, &s.Arrays, &s.Terms, &s.KeyCols)
	})
}

// load reads a unit and what of it is back.
func (e *Engine) load(ctx context.Context, id int64) (*unit, error) {
	u := &unit{id: id, by: map[int64][]*set{}}
	type place struct {
		database string
		number   int64
	}
	seen := map[place]*set{}
	for next, roots := []int64{id}, true; len(next) > 0; roots = false {
		var level []int64
		for _, db := range e.Databases {
			found, err := e.read(ctx, db, next, roots)
			if err != nil {
				return nil, fmt.Errorf("database %s: read what is kept: %w", db.Name, err)
			}
			for _, s := range found {
				if at := (place{db.Name, s.Number}); seen[at] == nil {
					seen[at], u.by[s.ID] = s, append(u.by[s.ID], s)
					u.sets = append(u.sets, s)
					level = append(level, s.ID)
				}
			}
		}
		slices.Sort(level)
		next = slices.Compact(level)
	}
	if len(u.sets) == 0 {
		return nil, fmt.Errorf("deletion %d: %w", id, ErrUnknown)
	}
	// Rows that were changed come last: they may have been deleted later.
	slices.SortStableFunc(u.sets, func(a, b *set) int { return cmp.Compare(min(1, len(a.Changed)), min(1, len(b.Changed))) })
	for _, db := range e.Databases {
		rows, _ := db.Pool.Query(ctx, db.Names.Render(text("marks")), id)
		var number int64
		var restored []int32
		if _, err := pgx.ForEachRow(rows, []any{&number, &restored}, func() error {
			if s := seen[place{db.Name, number}]; s != nil {
				s.restored = slices.Clone(restored)
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("database %s: read what is restored: %w", db.Name, err)
		}
	}
	return u, nil
}

// own finds the rows of each set that belong to the unit.
func (e *Engine) own(ctx context.Context, u *unit) error {
	// A cycle of definitions makes no cycle of sets: origins are older.
	done := map[*set]bool{}
	for range u.sets {
		progress := false
		for _, s := range u.sets {
			ready := !slices.ContainsFunc(s.Origins, func(id int64) bool {
				return slices.ContainsFunc(u.by[id], func(above *set) bool { return !done[above] })
			})
			if done[s] || !ready {
				continue
			}
			var err error
			if s.owned, err = e.members(ctx, u, s, func(above *set) []int32 { return above.owned }); err != nil {
				return err
			}
			done[s], progress = true, true
		}
		if !progress {
			break
		}
	}
	return nil
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
		for _, above := range u.by[id] {
			places := of(above)
			whole, some = whole && above.Left == 0 && len(places) == int(above.Rows), some || len(places) > 0
		}
	}
	switch {
	case !some:
		return nil, nil
	case whole:
		return upTo(s.Rows), nil
	case len(s.Via) == 0:
		return nil, nil // Kept by a trigger on a table below, for several deletions at once.
	}
	keys := make([][]*string, len(s.Keys))
	for _, id := range s.Origins {
		for _, above := range u.by[id] {
			if places := of(above); len(places) > 0 {
				if err := e.keysOf(ctx, above, s.Keys, places, keys); err != nil {
					return nil, err
				}
			}
		}
	}
	return e.referring(ctx, u, s, keys)
}

func upTo(n int32) []int32 {
	places := make([]int32, n)
	for i := range places {
		places[i] = int32(i) + 1
	}
	return places
}

// TableRows counts rows of one table.
type TableRows struct {
	Database string `json:"database"`
	Table    string `json:"table"`
	// Action is delete or update.
	Action string `json:"action"`
	Rows   int64  `json:"rows"`
	// Restored are back; LeftOut were never kept.
	Restored int64 `json:"restored"`
	LeftOut  int64 `json:"left_out"`
}

// Unit is one deletion for people.
type Unit struct {
	ID        int64       `json:"id"`
	Database  string      `json:"database"`
	Table     string      `json:"table"`
	DeletedAt time.Time   `json:"deleted_at"`
	Until     time.Time   `json:"until"`
	Actor     string      `json:"actor"`
	Keys      []string    `json:"keys"`
	State     string      `json:"state"`
	Tables    []TableRows `json:"tables"`
	// Waiting tells that the clean-up after its parents goes on.
	Waiting bool `json:"waiting"`
}

// summary counts what a unit has.
func (e *Engine) summary(ctx context.Context, u *unit) (*Unit, error) {
	root := u.sets[0]
	out := &Unit{ID: u.id, Database: root.on.Name, Table: root.Name, DeletedAt: root.KeptAt, Actor: root.Actor, Keys: []string{}}
	out.Until = root.KeptAt.UTC().Truncate(24 * time.Hour).Add(24*time.Hour + e.Keep)
	if len(root.owned) > 0 && len(root.KeyCols) > 0 {
		keys := make([][]*string, len(root.KeyCols))
		if err := e.keysOf(ctx, root, root.KeyCols, root.owned[:min(3, len(root.owned))], keys); err != nil {
			return nil, err
		}
		out.Keys = append(out.Keys, joined(keys)...)
	}
	var rows, restored, left int64
	for _, s := range u.sets {
		action := "delete"
		if len(s.Changed) > 0 {
			action = "update"
		}
		at := slices.IndexFunc(out.Tables, func(t TableRows) bool { return t.Database == s.on.Name && t.Table == s.Name && t.Action == action })
		if at < 0 {
			at, out.Tables = len(out.Tables), append(out.Tables, TableRows{Database: s.on.Name, Table: s.Name, Action: action})
		}
		t := &out.Tables[at]
		t.Rows += int64(len(s.owned))
		t.Restored += int64(len(s.restored))
		t.LeftOut += int64(s.Left)
		rows, restored, left = rows+int64(len(s.owned)), restored+int64(len(s.restored)), left+int64(s.Left)
	}
	waiting, err := e.waiting(ctx, u)
	if err != nil {
		return nil, err
	}
	out.Waiting = len(waiting) > 0
	switch {
	case restored == 0 && left > 0:
		out.State = "incomplete"
	case restored == 0:
		out.State = "whole"
	case restored < rows || left > 0:
		out.State = "partly_restored"
	default:
		out.State = "restored"
	}
	return out, nil
}

// joined are keys for people, from their columns.
func joined(columns [][]*string) []string {
	if len(columns) == 0 {
		return nil
	}
	keys := make([]string, len(columns[0]))
	for i := range keys {
		parts := make([]string, len(columns))
		for c, column := range columns {
			if parts[c] = "NULL"; column[i] != nil {
				parts[c] = *column[i]
			}
		}
		keys[i] = strings.Join(parts, ",")
	}
	return keys
}

// waiting are the sets whose parents still wait for the clean-up of their children.
func (e *Engine) waiting(ctx context.Context, u *unit) (map[int64]bool, error) {
	ids := make([]int64, 0, len(u.by))
	for id := range u.by {
		ids = append(ids, id)
	}
	waiting := map[int64]bool{}
	for _, db := range e.Databases {
		rows, _ := db.Pool.Query(ctx, db.Names.Render(text("waiting")), ids)
		found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, fmt.Errorf("database %s: look for waiting tombstones: %w", db.Name, err)
		}
		for _, id := range found {
			waiting[id] = true
		}
	}
	return waiting, nil
}

// Keeps is true where a database has a table of kept deletions.
func Keeps(ctx context.Context, db database.Database) (there bool, err error) {
	if err := db.Pool.QueryRow(ctx, db.Names.Render(text("keeps"))).Scan(&there); err != nil {
		return false, fmt.Errorf("database %s: look for kept deletions: %w", db.Name, err)
	}
	return there, nil
}

// Show tells of one deletion.
func (e *Engine) Show(ctx context.Context, id int64) (*Unit, error) {
	u, err := e.load(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := e.own(ctx, u); err != nil {
		return nil, err
	}
	return e.summary(ctx, u)
}

// List tells of the newest deletions of all databases.
func (e *Engine) List(ctx context.Context, limit int) ([]*Unit, error) {
	units := []*Unit{}
	for _, db := range e.Databases {
		rows, _ := db.Pool.Query(ctx, db.Names.Render(text("units")), limit)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, fmt.Errorf("database %s: list what is kept: %w", db.Name, err)
		}
		for _, id := range ids {
			one, err := e.Show(ctx, id)
			if errors.Is(err, ErrUnknown) {
				continue // Its day has passed since.
			}
			if err != nil {
				return nil, err
			}
			units = append(units, one)
		}
	}
	slices.SortStableFunc(units, func(a, b *Unit) int { return b.DeletedAt.Compare(a.DeletedAt) })
	return units[:min(limit, len(units))], nil
}

// Size is how much a database keeps, and the age of its oldest deletion.
func Size(ctx context.Context, db database.Database) (bytes int64, age time.Duration, err error) {
	var seconds float64
	err = db.Pool.QueryRow(ctx, db.Names.Render(text("size"))).Scan(&bytes, &seconds)
	if err != nil {
		return 0, 0, fmt.Errorf("database %s: measure what is kept: %w", db.Name, err)
	}
	return bytes, time.Duration(seconds * float64(time.Second)), nil
}
