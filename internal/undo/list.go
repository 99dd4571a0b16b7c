package undo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// TableRows counts the rows of one table that a deletion deleted or changed.
type TableRows struct {
	Database string `json:"database"`
	Table    string `json:"table"`
	// Action is what the deletion did to the rows: delete or update.
	Action string `json:"action"`
	Rows   int64  `json:"rows"`
	// Restored counts the restored rows. LeftOut counts the rows that were not saved.
	Restored int64 `json:"restored"`
	LeftOut  int64 `json:"left_out"`
}

// Unit is a deletion that can be undone, as shown to users.
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
	// Waiting reports whether tombstones of the deletion are pending.
	Waiting bool `json:"waiting"`
	// Shared reports whether Tables also counts rows of other deletions, because a batch
	// deleted them together. Show counts only the deletion's own rows.
	Shared bool `json:"shared"`
}

// summary returns a unit in the form for users, with its state and its rows counted by
// table and action.
func (e *Engine) summary(ctx context.Context, u *unit, waiting map[int64]bool) (*Unit, error) {
	root := u.sets[0]
	out := &Unit{
		ID: u.id, Database: root.on.Name, Table: root.Name, DeletedAt: root.KeptAt, Actor: root.Actor,
		Keys: []string{},
	}
	keep := e.Keep
	if keep == 0 { // Undo is switched off, so the last setting is read from the database.
		if err := root.on.Pool.QueryRow(ctx,
			root.on.Names.Render(`SELECT state.keep FROM "sexton".undo_state AS state`)).Scan(&keep); err != nil {
			return nil, fmt.Errorf("database %s: read the retention time of kept deletions: %w", root.on.Name, err)
		}
	}
	out.Until = root.KeptAt.UTC().Truncate(24 * time.Hour).Add(24*time.Hour + keep)
	if len(root.owned) > 0 && len(root.KeyCols) > 0 {
		keys := make([][]*string, len(root.KeyCols))
		if err := e.keysOf(ctx, groupOf(root), root.KeyCols, root.owned[:min(3, len(root.owned))], keys); err != nil {
			return nil, err
		}
		out.Keys = append(out.Keys, joinKeys(keys)...)
	}
	var rows, restored, left int64
	for _, s := range u.sets {
		action := "delete"
		if len(s.Changed) > 0 {
			action = "update"
		}
		at := slices.IndexFunc(out.Tables, func(t TableRows) bool {
			return t.Database == s.on.Name &&
				t.Table == s.Name && t.Action == action
		})
		if at < 0 {
			at, out.Tables = len(out.Tables), append(out.Tables,
				TableRows{Database: s.on.Name, Table: s.Name, Action: action})
		}
		t := &out.Tables[at]
		t.Rows += int64(len(s.owned))
		t.Restored += int64(len(s.restored()))
		t.LeftOut += int64(s.Left)
		rows, restored, left = rows+int64(len(s.owned)), restored+int64(len(s.restored())), left+int64(s.Left)
	}
	out.Waiting = slices.ContainsFunc(u.sets, func(s *set) bool { return waiting[s.ID] })
	switch {
	case restored == 0 && left > 0:
		out.State = "incomplete"
	case restored == 0:
		out.State = "complete"
	case restored < rows || left > 0:
		out.State = "partly_restored"
	default:
		out.State = "restored"
	}
	return out, nil
}

// joinKeys returns one text per key, with the values of the key's columns separated by
// commas.
func joinKeys(columns [][]*string) []string {
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

// waiting returns the IDs of the sets of parents whose tombstones are pending.
func (e *Engine) waiting(ctx context.Context, units ...*unit) (map[int64]bool, error) {
	waiting, of := map[int64]bool{}, map[int64]bool{}
	for _, u := range units {
		for id := range u.byID {
			of[id] = true
		}
	}
	ids := slices.Collect(maps.Keys(of))
	for _, db := range e.Databases {
		rows, _ := db.Pool.Query(ctx, db.Names.Render(text("waiting")), ids)
		found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, fmt.Errorf("database %s: find pending tombstones: %w", db.Name, err)
		}
		for _, id := range found {
			waiting[id] = true
		}
	}
	return waiting, nil
}

// Keeps reports whether a database has the table sexton.undo.
func Keeps(ctx context.Context, db database.Database) (there bool, err error) {
	if err := db.Pool.QueryRow(ctx, db.Names.Render(text("keeps"))).Scan(&there); err != nil {
		return false, fmt.Errorf("database %s: find kept deletions: %w", db.Name, err)
	}
	return there, nil
}

// Show returns one deletion.
func (e *Engine) Show(ctx context.Context, id int64) (*Unit, error) {
	u, err := e.load(ctx, id)
	if err != nil {
		return nil, err
	}
	waiting, err := e.waiting(ctx, u)
	if err != nil {
		return nil, err
	}
	return e.summary(ctx, u, waiting)
}

// List returns the newest deletions of all databases.
func (e *Engine) List(ctx context.Context, limit int) ([]*Unit, error) {
	units := []*Unit{}
	for _, db := range e.Databases {
		rows, _ := db.Pool.Query(ctx, db.Names.Render(text("units")), limit)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, fmt.Errorf("database %s: list kept deletions: %w", db.Name, err)
		}
		of, err := e.loadAll(ctx, ids)
		if err != nil {
			return nil, err
		}
		waiting, err := e.waiting(ctx, slices.Collect(maps.Values(of))...)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if of[id] == nil {
				continue // The deletion expired after its ID was read.
			}
			one, err := e.outline(ctx, of[id], waiting)
			if err != nil {
				return nil, err
			}
			units = append(units, one)
		}
	}
	slices.SortStableFunc(units, func(a, b *Unit) int { return b.DeletedAt.Compare(a.DeletedAt) })
	return units[:min(limit, len(units))], nil
}

// Size returns the size of the saved rows of a database, and the age of the oldest
// deletion.
func Size(ctx context.Context, on dbsqlc.DBTX, names pgcatalog.Names) (bytes int64, age time.Duration, err error) {
	var seconds float64
	err = on.QueryRow(ctx, names.Render(text("size"))).Scan(&bytes, &seconds)
	return bytes, time.Duration(seconds * float64(time.Second)), problem.Doing(err, "measure kept rows")
}

// Size returns a text with the size of the saved rows of all databases and the age of the
// oldest deletion.
func (e *Engine) Size(ctx context.Context) (string, error) {
	var bytes int64
	var oldest time.Duration
	for _, db := range e.Databases {
		more, age, err := Size(ctx, db.Pool, db.Names)
		if err != nil {
			return "", fmt.Errorf("database %s: %w", db.Name, err)
		}
		bytes, oldest = bytes+more, max(oldest, age)
	}
	return Sized(bytes, oldest), nil
}

// Sized returns a text with the size of saved rows and the age of the oldest deletion.
func Sized(bytes int64, oldest time.Duration) string {
	if oldest == 0 {
		return "0 MB of deleted rows are kept"
	}
	return fmt.Sprintf("%.1f MB of deleted rows are kept, the oldest for %s", float64(bytes)/1e6, render.Span(oldest))
}

// outline returns a deletion like Show, but assumes that all rows of its sets belong to
// it if several deletions share a set. Reading the rows of shared sets would take seconds
// for many deletions. outline reads them only if some rows have been restored, because
// the state then depends on the deletion's own rows.
func (e *Engine) outline(ctx context.Context, u *unit, waiting map[int64]bool) (_ *Unit, err error) {
	shared, back := map[int64]bool{}, false
	for _, s := range u.sets {
		back = back || len(s.Restored) > 0
		if slices.ContainsFunc(s.Origins, func(id int64) bool { return len(u.byID[id]) == 0 || shared[id] }) {
			shared[s.ID] = true
		}
	}
	if len(shared) == 0 || back {
		err = e.findOwned(ctx, u)
	}
	if outlined := len(shared) > 0 && !back; outlined || errors.Is(err, ErrTwice) {
		for _, s := range u.sets {
			if s.Kept {
				s.owned = upTo(s.Rows)
			}
		}
	} else if err != nil {
		return nil, err
	}
	one, err := e.summary(ctx, u, waiting)
	if err == nil {
		one.Shared = len(shared) > 0 && !back
	}
	return one, err
}
