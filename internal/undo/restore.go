package undo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

//go:embed queries
var files embed.FS

// text returns the statement in a file of the folder queries.
func text(name string) string {
	data, _ := files.ReadFile("queries/" + name + ".sql")
	return string(data)
}

// Engine restores the deletions that are saved in a group of databases.
type Engine struct {
	Databases []database.Database
	// Parents holds the parents of definitions by database.
	Parents map[string][]*loosefk.Parent
	// Keep is the retention time of deletions. FireTriggers enables the application's
	// triggers during a restore.
	Keep         time.Duration
	FireTriggers bool
	// Leases grants the leases of the queues. Key returns the lease key of a database's
	// queue.
	Leases                        *lease.Manager
	Key                           func(database string) string
	StatementTimeout, LockTimeout time.Duration
	// Reached, if set, is called at each named point of a restore. If it returns an
	// error, the restore ends with that error.
	Reached func(point string) error

	leases    []*lease.Lease
	renewed   time.Time
	operators map[string]*pgcatalog.Operators
}

const (
	// mostTries limits the tries of a transaction that ends because of a deadlock or
	// because its session was terminated.
	mostTries = 3
	// mostRounds limits the rounds of a transaction. Each round restores the rows again,
	// without those that had no parent in the round before.
	mostRounds = 10
	// mostLeft limits the number of rows that a report names as not restored.
	mostLeft = 10_000
)

// SilenceError reports that a dry run is not possible, because the role may not silence
// triggers.
type SilenceError struct{ Database, Grant string }

func (e *SilenceError) Error() string {
	return fmt.Sprintf("database %s: --dry-run restores the rows with triggers disabled and rolls back, but the role may not disable triggers; %s",
		e.Database, e.Grant)
}

// Report is the outcome of a Restore.
type Report struct {
	Unit *Unit `json:"deletion"`
	// Restored counts the rows that this call restored.
	Restored int64 `json:"restored"`
	// Left holds the first mostLeft rows that were not restored. LeftRows counts all of
	// them.
	Left     []Left `json:"left"`
	LeftRows int64  `json:"left_rows"`
	// Triggers reports whether the application's triggers fired.
	Triggers bool `json:"triggers_fired"`
	DryRun   bool `json:"dry_run"`
	// Notes are texts about the whole restore, for example about columns that do not
	// exist.
	Notes []string `json:"notes"`
}

// Left is a row that was not restored.
type Left struct {
	Database string `json:"database"`
	Table    string `json:"table"`
	Key      string `json:"key"`
	Reason   string `json:"reason"`
}

func (r *Report) notef(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, note) {
		r.Notes = append(r.Notes, note)
	}
}

// Restore restores the rows of a deletion, usually in one transaction per database. The
// report names the rows that were not restored. A dry run rolls the transactions back. If
// Restore is called again, it restores the missing rows and changes nothing else.
func (e *Engine) Restore(ctx context.Context, id int64, dryRun bool) (report *Report, err error) {
	report = &Report{Left: []Left{}, Notes: []string{}, DryRun: dryRun}
	silent := map[string]bool{}
	for _, db := range e.Databases {
		may, grant, err := MaySilence(ctx, db.Pool, "")
		if err != nil {
			return nil, fmt.Errorf("database %s: %w", db.Name, err)
		}
		if dryRun && !may {
			return nil, &SilenceError{db.Name, grant}
		}
		silent[db.Name] = may && (dryRun || !e.FireTriggers)
		report.Triggers = report.Triggers || !silent[db.Name]
	}
	e.operators = nil // The operators are read again, because tables may have changed since the last restore.
	begun := false
	err = e.withLeases(ctx, func() error {
		u, err := e.load(ctx, id)
		if err != nil {
			return err
		}
		begun = true
		seen := map[string]bool{}
		for _, sets := range u.steps() {
			name := sets[0].on.Name
			if dryRun && seen[name] {
				report.notef("the deletion has two transactions in database %s. In a dry run, the second one does not see the rows of the first one, "+
					"so a real run would restore some of the rows that are listed as not restored", name)
			}
			seen[name] = true
			if err = e.restoreStep(ctx, u, sets, silent[sets[0].on.Name], report); err != nil {
				break
			}
		}
		var failed error
		report.Unit, failed = e.Show(ctx, id)
		return errors.Join(err, failed)
	})
	if !begun {
		return nil, err
	}
	return report, err
}

// MaySilence reports whether a role may silence triggers. The role "" is the current
// role. grant is the statement that gives the role this privilege.
func MaySilence(ctx context.Context, on dbsqlc.DBTX, role string) (may bool, grant string, err error) {
	var older bool
	err = on.QueryRow(ctx, text("superuser"), role).Scan(&older, &may, &grant)
	if err == nil && !older {
		err = on.QueryRow(ctx, text("may_replicate"), role).Scan(&may)
	}
	return may, grant, problem.Doing(err, "check whether the role may disable triggers")
}

// steps returns the sets of a deletion by transaction. A set comes after the sets of
// other databases that caused it. If a deletion passed between two databases several
// times, one of them has more than one transaction.
func (u *unit) steps() (steps [][]*set) {
	depth, deepest := map[*set]int{}, 0
	var order []string
	for _, s := range u.sets {
		for _, id := range s.Origins {
			for _, above := range u.above(s, id) {
				more := 0
				if above.on.Name != s.on.Name {
					more = 1
				}
				depth[s] = max(depth[s], depth[above]+more)
			}
		}
		deepest = max(deepest, depth[s])
		if !slices.Contains(order, s.on.Name) {
			order = append(order, s.on.Name)
		}
	}
	for at := range deepest + 1 {
		for _, name := range order {
			step := slices.DeleteFunc(slices.Clone(u.sets),
				func(s *set) bool { return depth[s] != at || s.on.Name != name })
			if len(step) > 0 {
				steps = append(steps, step)
			}
		}
	}
	return steps
}

// work is one transaction of a restore.
type work struct {
	engine *Engine
	unit   *unit
	db     database.Database
	tx     pgx.Tx
	silent bool
	// deleted holds the groups to insert, parents first. changed holds the groups to
	// update, the newest change first.
	deleted, changed []*restored
	// tables holds the table of each layout, by the layout's ID. The table is nil if it
	// does not exist.
	tables map[int64]*table
	// sets caches the results of laterSets by table and columns.
	sets map[string][]*set
}

// restored is a group of sets that are restored together.
type restored struct {
	*group

	table *table
	// pending are the rows that have not been tried. back are the rows that have been
	// restored.
	pending []int32
	back    restoredRows
	// left holds the reason for each row that is not restored. later holds the rows that
	// can be restored only after a later deletion is undone, each with the row that the
	// later deletion saved.
	left  map[int32]string
	later map[int32]laterRow
}

// leave records the reason for which rows are not restored.
func (g *restored) leave(reason string, rows ...int32) {
	for _, row := range rows {
		g.left[row] = reason
	}
}

// leftRows returns all rows that are not restored, sorted.
func (g *restored) leftRows() []int32 {
	return union(slices.Collect(maps.Keys(g.later)), slices.Collect(maps.Keys(g.left)))
}

// restoredRows is a list of restored rows: their numbers in the group, tables and ctids.
type restoredRows struct {
	rows      []int32
	relations []uint32
	tids      []string
}

func (c *restoredRows) add(more restoredRows) {
	c.rows, c.relations, c.tids = append(c.rows, more.rows...), append(c.relations, more.relations...),
		append(c.tids, more.tids...)
}

// args returns the rows as arguments for the statements of a check.
func (c *restoredRows) args(of *check) []any {
	return append([]any{c.relations, c.tids, c.rows}, of.args.Values[3:]...)
}

var errDryRun = errors.New("rolled back")

// restoreStep restores sets of one database in one transaction, and adds the outcome to
// the report.
func (e *Engine) restoreStep(ctx context.Context, u *unit, sets []*set, silent bool, report *Report) (err error) {
	var w *work
	for range mostTries {
		w = &work{
			engine: e, unit: u, db: sets[0].on, silent: silent, tables: map[int64]*table{},
			sets: map[string][]*set{},
		}
		err = e.fenced(ctx, w.db, silent, func(tx pgx.Tx) error {
			w.tx = tx
			if err := w.run(ctx, sets); err != nil || !report.DryRun {
				return err
			}
			return errDryRun
		})
		// The transaction was rolled back, because another session deadlocked with this
		// session or terminated it.
		ended := w.tx != nil && w.tx.Conn().IsClosed() || batch.Judge(err).Verdict == batch.Conflict
		if err == nil || !ended || ctx.Err() != nil {
			break
		}
	}
	if err != nil && !errors.Is(err, errDryRun) {
		return fmt.Errorf("database %s: %w", w.db.Name, err)
	}
	return w.report(ctx, report)
}

// run restores the sets, deletes the tombstones of restored parents, and stores which
// rows are restored.
func (w *work) run(ctx context.Context, sets []*set) error {
	if err := w.engine.point("begun"); err != nil {
		return err
	}
	if err := w.prepare(ctx, sets); err != nil {
		return err
	}
	if err := w.restore(ctx); err != nil {
		return err
	}
	if err := w.engine.point("checked"); err != nil {
		return err
	}
	// The settings also apply to triggers, so no trigger may fire after this call.
	if err := setValueSettings(ctx, w.tx); err != nil {
		return err
	}
	if err := w.deleteTombstones(ctx); err != nil {
		return err
	}
	if err := w.markRestored(ctx); err != nil {
		return err
	}
	return w.engine.point("marked")
}

func (e *Engine) point(name string) error {
	if e.Reached == nil {
		return nil
	}
	return e.Reached(name)
}

// prepare locks the saved rows and the tables, and groups the sets.
func (w *work) prepare(ctx context.Context, sets []*set) error {
	if err := w.lock(ctx, sets); err != nil {
		return err
	}
	groups := map[int64]*restored{}
	var last *restored
	for _, s := range sets {
		t := w.tables[s.layout.ID]
		wanted, orphaned, err := w.rowsToRestore(ctx, s)
		if err != nil {
			return err
		}
		g := groups[s.layout.ID]
		// If triggers fire, rows must be inserted after their parents, so only
		// consecutive sets form a group. Several changes of one row must be undone one by
		// one, so each changed set is a group of its own.
		if g == nil || s.changes() || g != last && !w.silent || len(g.sets) >= mostSets ||
			g.rows+s.Rows > mostRows {
			g = &restored{group: &group{set: s}, table: t, left: map[int32]string{}, later: map[int32]laterRow{}}
			if t != nil {
				g.set = t.retyped(s)
			}
			if s.changes() {
				w.changed = append(w.changed, g)
			} else {
				groups[s.layout.ID], w.deleted = g, append(w.deleted, g)
			}
		}
		last = g
		before := g.add(s)
		for _, row := range orphaned {
			g.leave("its parent was not restored", before+row)
		}
		reason := g.obstacle(w.silent)
		for _, row := range wanted {
			if reason != "" {
				g.leave(reason, before+row)
			} else {
				g.pending = append(g.pending, before+row)
			}
		}
	}
	slices.SortStableFunc(w.changed, func(a, b *restored) int { return int(min(1, max(-1, b.Number-a.Number))) })
	return nil
}

// lock locks the saved rows, so that their partition is not dropped. It also locks the
// tables against changes of their definition.
func (w *work) lock(ctx context.Context, sets []*set) error {
	all, by := groupOf(sets...), map[int64]*set{}
	for _, s := range sets {
		by[s.Number] = s
	}
	var number int64
	var before []int32
	found := 0
	rows, _ := w.tx.Query(ctx, w.db.Names.Render(text("lock")), all.args(nil)[:2]...)
	if _, err := pgx.ForEachRow(rows, []any{&number, &before}, func() error {
		found++
		by[number].Restored = slices.Clone(before)
		return nil
	}); err != nil {
		return fmt.Errorf("lock the kept rows: %w", err)
	}
	if found < len(by) {
		return errors.New("the kept rows of the deletion have expired or were forgotten")
	}
	for _, s := range sets {
		if _, known := w.tables[s.layout.ID]; known {
			continue
		}
		t, err := w.engine.readTable(ctx, w.tx, w.db.Name, &s.layout)
		if err == nil && t != nil {
			// PREPARE of an INSERT locks the table like the INSERT, but needs no
			// privilege on it.
			if _, err = w.tx.Exec(ctx, "PREPARE sexton AS INSERT INTO "+t.Name+
				" DEFAULT VALUES; DEALLOCATE sexton"); err == nil {
				t, err = w.engine.readTable(ctx, w.tx, w.db.Name, &s.layout)
			}
		}
		if err != nil {
			return fmt.Errorf("lock table %s: %w", s.Name, err)
		}
		w.tables[s.layout.ID] = t
	}
	return nil
}

// rowsToRestore returns the rows of a set that must be restored. orphaned are the rows
// whose parent is missing in another database or whose parent table does not exist.
// leaveDangling later finds rows without a parent in this database.
func (w *work) rowsToRestore(ctx context.Context, s *set) (wanted, orphaned []int32, err error) {
	of := func(above *set) []int32 {
		switch t, ours := w.tables[above.layout.ID]; {
		case above.on.Name != w.db.Name:
			return above.present
		case ours && t == nil:
			return nil
		default:
			return above.owned
		}
	}
	less := slices.ContainsFunc(s.Origins, func(id int64) bool {
		return slices.ContainsFunc(w.unit.above(s, id),
			func(above *set) bool { return len(of(above)) < len(above.owned) })
	})
	if wanted = s.owned; less {
		if wanted, err = w.engine.members(ctx, w.unit, s, of); err != nil {
			return nil, nil, err
		}
	}
	return without(wanted, s.Restored), without(without(s.owned, wanted), s.Restored), nil
}

// obstacle returns the reason for which no row of the group can be restored, or "".
func (g *restored) obstacle(silent bool) string {
	switch {
	case g.table == nil:
		return "its table does not exist"
	case silent && g.table.Deferrable != "":
		return "its unique key " + g.table.Deferrable +
			" is deferrable and checked only by triggers: set loose_foreign_keys.undo.fire_triggers to true"
	}
	if _, key := g.table.byKey(g.group, "child"); g.changes() && len(key) == 0 {
		return "its table now has a different primary key"
	}
	for _, column := range g.Changed {
		if name, _ := g.table.currentColumn(&g.layout, g.column(column)); name == "" {
			return "column " + column + " does not exist"
		}
	}
	return ""
}

// restore restores the rows and checks them. Rows may refer to each other, so restore
// searches for rows without a parent after it has restored all rows. If it finds any, it
// rolls back to a savepoint and restores the rows without them.
//
// If triggers fire, restore first defers constraints to the end. If a constraint then
// fails, it restores the rows again with a check after each statement, which finds the
// failing rows.
func (w *work) restore(ctx context.Context) error {
	deferred := !w.silent
	for range mostRounds {
		if _, err := w.tx.Exec(ctx, "SAVEPOINT sexton_all"); err != nil {
			return fmt.Errorf("set savepoint: %w", err)
		}
		done, err := w.attempt(ctx, deferred)
		switch {
		case err == nil && done:
			return nil
		case err != nil && deferred && strings.HasPrefix(pgcatalog.SQLState(err), "23"):
			deferred = false
		case err != nil:
			return err
		}
		if _, err := w.tx.Exec(ctx, "ROLLBACK TO SAVEPOINT sexton_all; RELEASE SAVEPOINT sexton_all"); err != nil {
			return fmt.Errorf("roll back to savepoint: %w", err)
		}
		for _, g := range slices.Concat(w.deleted, w.changed) {
			g.pending, g.back = without(union(g.pending, g.back.rows), g.leftRows()), restoredRows{}
		}
	}
	return errors.New("other sessions change the tables too often: try again when fewer sessions write to them")
}

// attempt restores all pending rows. It returns false if some of them have no parent.
func (w *work) attempt(ctx context.Context, deferred bool) (done bool, _ error) {
	if !w.silent {
		constraints := "SET CONSTRAINTS ALL IMMEDIATE"
		if deferred {
			constraints = "SET CONSTRAINTS ALL DEFERRED"
		}
		if _, err := w.tx.Exec(ctx, constraints); err != nil {
			return false, fmt.Errorf("set constraints: %w", err)
		}
	}
	if err := w.insertAll(ctx); err != nil {
		return false, err
	}
	if err := w.engine.point("inserted"); err != nil {
		return false, err
	}
	if dangling, err := w.leaveDangling(ctx); err != nil || dangling {
		return false, err
	}
	for _, g := range w.changed {
		if err := w.leaveChangedLater(ctx, g); err != nil {
			return false, err
		}
		if _, err := w.restoreGroup(ctx, g); err != nil {
			return false, err
		}
	}
	if deferred {
		if _, err := w.tx.Exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
			return false, err //nolint:wrapcheck // restore tries again.
		}
	}
	return true, nil
}

// insertAll inserts the rows of all groups. If triggers fire, a foreign key may refuse
// rows whose parents are inserted later. insertAll retries such rows until no more of
// them can be inserted.
func (w *work) insertAll(ctx context.Context) error {
	refused := map[*restored]map[string][]int32{}
	for progress := true; progress; {
		progress = false
		clear(refused)
		for _, g := range w.deleted {
			before := len(g.back.rows)
			waiting, err := w.restoreGroup(ctx, g)
			if err != nil {
				return err
			}
			refused[g] = waiting
			progress = progress || len(g.back.rows) > before
			for _, rows := range waiting {
				g.pending = append(g.pending, rows...)
			}
		}
		progress = progress && slices.ContainsFunc(w.deleted, func(g *restored) bool { return len(g.pending) > 0 })
	}
	for g, reasons := range refused {
		g.pending = nil
		for reason, rows := range reasons {
			g.leave(reason, rows...)
		}
	}
	return nil
}

// deleteTombstones deletes the tombstones of restored parents, so that no worker deletes
// their children.
func (w *work) deleteTombstones(ctx context.Context) error {
	for _, g := range w.deleted {
		keys, err := w.engine.tombstoneKeys(ctx, w.tx, g.group, g.table, g.back.rows)
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			continue
		}
		if _, err := w.tx.Exec(ctx, w.db.Names.Render(text("delete_tombstones")), g.args(nil)[0], keys, g.Relation); err != nil {
			return fmt.Errorf("delete the tombstones of %s: %w", g.Name, err)
		}
	}
	return nil
}

// markRestored stores which rows are restored. If there are several databases, it also
// records which parents exist, because rows of other databases refer to them.
func (w *work) markRestored(ctx context.Context) error {
	var marks pgx.Batch
	for _, g := range slices.Concat(w.deleted, w.changed) {
		back := map[*set][]int32{}
		for _, row := range g.back.rows {
			s, at := g.locate(row)
			back[s] = append(back[s], at)
		}
		for s, rows := range back {
			s.Restored = union(s.Restored, rows)
			marks.Queue(w.db.Names.Render(text("mark")), s.ID, s.Number, s.Restored)
		}
	}
	if marks.Len() > 0 {
		if err := w.tx.SendBatch(ctx, &marks).Close(); err != nil {
			return fmt.Errorf("store the restored rows: %w", err)
		}
	}
	for _, g := range w.deleted {
		for _, s := range g.sets {
			if len(w.engine.Databases) == 1 || g.table == nil {
				continue
			}
			present, known, err := w.taken(ctx, groupOf(g.table.retyped(s)), g.table, s.owned)
			if err != nil {
				return err
			}
			if s.present = present; !known {
				s.present = s.Restored
			}
		}
	}
	return nil
}

// report adds the outcome of the transaction to the report of the restore.
func (w *work) report(ctx context.Context, report *Report) error {
	for _, g := range slices.Concat(w.deleted, w.changed) {
		report.Restored += int64(len(g.back.rows))
		if g.table != nil && !g.changes() {
			for at, column := range g.Columns {
				if name, _ := g.table.currentColumn(&g.layout, at); name == "" {
					report.notef("column %s of %s does not exist", column, g.Name)
				}
			}
		}
		for row, later := range g.later {
			var err error
			if g.left[row], err = w.engine.undoFirst(ctx, later); err != nil {
				return err
			}
		}
		for _, s := range g.sets {
			if s.viaExcluded {
				report.notef("rows of %s may be missing: %s is excluded, so the rows of this deletion cannot be found", s.Name,
					strings.Join(s.Via, ", "))
			}
		}
		if err := w.reportLeft(ctx, g, report); err != nil {
			return err
		}
	}
	return nil
}

// reportLeft adds the rows of a group that are not restored to the report, with their
// keys.
func (w *work) reportLeft(ctx context.Context, g *restored, report *Report) error {
	report.LeftRows += int64(len(g.left))
	rows := slices.Sorted(maps.Keys(g.left))
	if rows = rows[:min(len(rows), mostLeft-len(report.Left))]; len(rows) == 0 {
		return nil
	}
	keys := make([][]*string, len(g.KeyCols))
	if len(keys) > 0 {
		if err := w.engine.keysOf(ctx, g.group, g.KeyCols, rows, keys); err != nil {
			return err
		}
	}
	shown := joinKeys(keys)
	for i, row := range rows {
		s, at := g.locate(row)
		left := Left{
			Database: s.on.Name, Table: s.Name, Reason: g.left[row],
			Key: fmt.Sprintf("row %d of %d", at, s.Number),
		}
		if i < len(shown) {
			left.Key = shown[i]
		}
		report.Left = append(report.Left, left)
	}
	return nil
}
