package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pace"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

const (
	// windowRows limits the rows of one window if no table refers to them. Otherwise
	// windows begin with firstWindow rows and have at most largestWindow.
	windowRows    = 10_000
	firstWindow   = 50
	largestWindow = 2000
	// mostExcluded limits the rows of a leaf that a statement leaves out because they
	// cannot be deleted now. If there are more, the other rows of the leaf are left for
	// later.
	mostExcluded = 10_000
	// forbiddingRows limits the rows of a window with the action Forbid, which only
	// prevent a deletion.
	forbiddingRows = 100
	// mostRefills limits how often in a row new rows may appear below a window after all
	// rows below it were deleted.
	mostRefills = 20
	// mostInCycle limits the rows that one statement deletes because they form a cycle.
	mostInCycle = 10_000
	// MostFailures is the number of failed rows after which a run stops.
	MostFailures = 100
)

// ErrCancelled is returned by Tree.Alter if the owner's rows must no longer be deleted.
var ErrCancelled = errors.New("the deletion was canceled")

// errHalve is returned if a query for the children of several rows takes too long. The
// caller retries each half of the rows.
var errHalve = errors.New("too many rows for one query of the rows below")

// Tree deletes rows after all rows that refer to them by native foreign keys, children
// first, in small transactions. In this file a key is such a foreign key (Ref), and a row
// is below another if it refers to it directly or through other rows.
//
// A Window is some rows of one leaf table. DeleteWindow deletes a window: it clears the
// rows that refer to the window, which are windows again, and then removes the window's
// own rows. Stack has the windows on the way down. If rows below a window are also on the
// stack, these rows form a cycle. Single statements cannot delete a cycle in any order,
// so cascade uses one statement and the actions of the keys.
//
// Each statement decides by the position, version and key of rows in its own snapshot. A
// run can be killed at any point: the next Tree finds the rows that are left.
//
// A row can be left for three reasons. Locked rows are excluded until Restart (stuck).
// Rows that cannot be deleted or changed are excluded until the end of the run (failed).
// If a row below is left, the rows above it are left too.
type Tree struct {
	Session *batch.Session
	Owner   dml.Owner
	// Target is the time that one statement should take. Rows is the number of rows of
	// the first statements. If Rows is 0, they have firstRows.
	Target time.Duration
	Rows   int
	Sizes  *Sizes
	Pace   *pace.Run
	// Send runs a transaction. Alter runs a transaction that deletes or changes
	// application rows, and may add the owner's statements to it.
	Send, Alter func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error
	// Paused reports whether the run must stop before the next batch.
	Paused func(ctx context.Context) bool
	// Progress is called after every batch.
	Progress func(ctx context.Context)

	// Waits makes batches wait for rows that other sessions have locked. Without it these
	// rows are left out.
	Waits bool
	// Stack holds the windows whose trees are being deleted, from the top down. Deepest
	// is the largest length of Stack so far, and Lowest the table of its last window at
	// that time.
	Stack   []*dml.Window
	Deepest int
	Lowest  *dml.Table
	// Changes counts rows that were deleted or changed.
	Changes int64
	// Failures counts faults of rows that cannot be deleted or changed. failed holds
	// these rows by leaf. stuck also holds the rows that were left since Restart.
	Failures      int
	failed, stuck map[uint32][]dml.Tuple
	// leftCycle reports that a cycle was left since Restart because its rows had changed.
	// cycleRetries counts how often in a row RetryCycle returned true.
	leftCycle    bool
	cycleRetries int
	// Fault is the first error that a row caused. Obstacle is another reason why rows are
	// left, such as a lock.
	Fault    *batch.Fault
	Obstacle batch.Fault
}

// Restart makes the Tree retry rows that were skipped because they or rows below them
// were locked.
func (t *Tree) Restart() {
	if t.Sizes == nil {
		t.Sizes, t.failed = &Sizes{}, map[uint32][]dml.Tuple{}
	}
	t.Obstacle, t.stuck, t.leftCycle = batch.Fault{}, map[uint32][]dml.Tuple{}, false
	for leaf, tuples := range t.failed {
		t.stuck[leaf] = append(t.stuck[leaf], tuples...)
	}
}

// DeleteWindow deletes a window's rows after all rows below them. It returns the rows
// that are left.
func (t *Tree) DeleteWindow(ctx context.Context, w *dml.Window) (left dml.Rows, result dml.Result, err error) {
	left, kept, result, err := t.clearAndRemove(ctx, w)
	switch {
	case errors.Is(err, errHalve):
		return t.deleteHalves(ctx, w)
	case err != nil || result != dml.Blocked || !t.Waits || w.Refilled:
	case len(w.Cycle) > 0:
		return t.cascade(ctx, w, left)
	case kept && t.Obstacle.Message == "":
		t.Obstacle = batch.Fault{
			Table:   w.Table.Label(),
			Message: "rows are left although no session has locked them: a trigger or rule of the table keeps them",
		}
	}
	return left, result, err
}

// clearAndRemove deletes the rows below a window and then the window's own rows. It
// returns the rows that are left. kept reports that all of the window's own rows are
// left, although no row is left below the window.
//
// If kept is true, clearAndRemove repeats both steps while it finds rows below, at most
// mostRefills times. With Waits it repeats them once even if it finds none, since the
// window's rows may have changed.
func (t *Tree) clearAndRemove(ctx context.Context,
	w *dml.Window,
) (left dml.Rows, kept bool, result dml.Result, err error) {
	refs := w.Table.RefsOf(w.Leaf)
	for tries := 1; ; tries++ {
		found, resultBelow, err := t.clear(ctx, w, refs)
		left, result = w.Rows, resultBelow
		if err == nil && (resultBelow == dml.Finished || resultBelow == dml.Blocked && len(w.Rows) > 1) {
			left, result, err = t.remove(ctx, w)
		}
		kept = resultBelow == dml.Finished && len(left) == len(w.Rows)
		switch {
		case err != nil || result != dml.Blocked || !kept:
			return left, kept, result, err
		case found != nil && tries <= mostRefills:
		case found != nil:
			t.giveUpRefilled(w, found)
			return left, kept, result, nil
		case tries > 1 || !t.Waits:
			return left, kept, result, nil
		}
	}
}

// giveUpRefilled excludes the rows of a window until the end of the run, because rows
// that refer to them reappear as fast as they are deleted. found is the key of the
// referring rows.
func (t *Tree) giveUpRefilled(w *dml.Window, found *dml.Ref) {
	w.Refilled = true
	t.CountFailure(RefilledFault(found.Table.Label()))
	t.excludeRows(w.Leaf, w.Rows)
}

// deleteHalves deletes each half of a window separately, after a query for the children
// of the complete window took too long.
func (t *Tree) deleteHalves(ctx context.Context, w *dml.Window) (left dml.Rows, _ dml.Result, _ error) {
	half := len(w.Rows) / 2
	for _, rows := range []dml.Rows{w.Rows[:half], w.Rows[half:]} {
		leftOfHalf, result, err := t.DeleteWindow(ctx, &dml.Window{Table: w.Table, Leaf: w.Leaf, Rows: rows})
		if left = append(left, leftOfHalf...); err != nil || result == dml.Yielded {
			return left, result, err
		}
	}
	return left, blockedIf(len(left) > 0), nil
}

func blockedIf(left bool) dml.Result {
	if left {
		return dml.Blocked
	}
	return dml.Finished
}

// Clear deletes or changes the rows that refer to a window's rows by the given keys. It
// repeats this until a query finds no rows of any key, and then returns Finished. After
// mostRefills repetitions it returns Blocked.
func (t *Tree) Clear(ctx context.Context, w *dml.Window, refs []*dml.Ref) (dml.Result, error) {
	for refills := 0; ; refills++ {
		found, result, err := t.clear(ctx, w, refs)
		switch {
		case err != nil || result != dml.Finished || found == nil:
			return result, err
		case refills == mostRefills:
			w.Refilled = true
			t.CountFailure(RefilledFault(found.Table.Label()))
			return dml.Blocked, nil
		}
	}
}

// clear deletes or changes the rows that refer to a window's rows by the given keys. It
// queries each key once. found is a key that had rows, for which the caller may have to
// repeat the query.
func (t *Tree) clear(ctx context.Context, w *dml.Window, refs []*dml.Ref) (found *dml.Ref, _ dml.Result, _ error) {
	if t.stuck == nil {
		t.Restart()
	}
	t.Stack = append(t.Stack, w)
	if len(t.Stack) > t.Deepest {
		t.Deepest, t.Lowest = len(t.Stack), w.Table
	}
	defer func() { t.Stack = t.Stack[:len(t.Stack)-1] }()
	withRows, blocked := refs, false
	if len(refs) > 1 {
		var err error
		if withRows, err = t.findRefs(ctx, w, refs); err != nil {
			result, err := t.handleReadError(w, err)
			return nil, result, err
		}
	}
	for _, ref := range withRows {
		for _, leaf := range ref.Leaves {
			if t.Paused(ctx) {
				return nil, dml.Yielded, nil
			}
			hasRows, result, err := t.drainRef(ctx, w, ref, leaf)
			if err != nil || result == dml.Yielded {
				return nil, result, err
			}
			if hasRows {
				found = ref
			}
			blocked = blocked || result == dml.Blocked
		}
	}
	if !blocked {
		return found, dml.Finished, nil
	}
	// Rows are left, but other sessions may have changed them so that they no longer
	// refer to the window. Query again.
	withRows, err := t.findRefs(ctx, w, refs)
	if err != nil {
		result, err := t.handleReadError(w, err)
		return nil, result, err
	}
	return found, blockedIf(len(withRows) > 0), nil
}

// findRefs returns the keys by which rows refer to a window's rows.
func (t *Tree) findRefs(ctx context.Context, w *dml.Window, refs []*dml.Ref) ([]*dml.Ref, error) {
	live, err := w.LiveRefs(ctx, t.Read, refs)
	if err == nil {
		t.Sizes.learn(windowName(w.Leaf), len(w.Rows), t.Session.Took(), t.Target, largestWindow)
	}
	return live, err
}

// RefilledFault returns the fault of a table whose deleted rows reappear as fast as they
// are deleted.
func RefilledFault(table string) batch.Fault {
	return batch.Fault{Table: table, Verdict: batch.Row, Message: "rows reappear as fast as they are deleted: " +
		"a trigger or an application inserts them"}
}

// handleReadError handles an error of a query for the children of a window. If the query
// took too long, it returns errHalve so that the caller retries with fewer rows.
func (t *Tree) handleReadError(w *dml.Window, err error) (dml.Result, error) {
	if n := len(w.Rows); n > 1 && batch.Judge(err).Verdict == batch.Timeout && !t.Pace.Ended() {
		t.Sizes.shrink(windowName(w.Leaf), n)
		return dml.Blocked, errHalve
	}
	return t.HandleError(err, w.Table.Label())
}

// windowRows returns the number of rows of a leaf that the next window has.
func (t *Tree) windowRows(leaf pgcatalog.Table) int {
	return min(largestWindow, t.Sizes.get(windowName(leaf), firstWindow))
}

// windowName returns the name under which Sizes stores the rows per window.
func windowName(leaf pgcatalog.Table) string { return fmt.Sprint("below ", leaf.OID) }

// Read runs read-only statements with a short lock timeout, unless Waits is set.
func (t *Tree) Read(ctx context.Context, statements ...batch.Statement) error {
	limits := t.ShortWaits()
	limits.Reads = true
	return t.Send(ctx, limits, statements...)
}

// drainRef deletes or changes the rows of one leaf that refer to the window's rows by a
// key. hasRows reports whether there were any. It skips rows that cannot be deleted or
// changed now.
func (t *Tree) drainRef(ctx context.Context, w *dml.Window, ref *dml.Ref,
	leaf pgcatalog.Table,
) (hasRows bool, _ dml.Result, _ error) {
	limit := windowRows
	switch {
	case ref.Action == dml.Forbid:
		limit = forbiddingRows
	case ref.Action == dml.Remove && len(ref.Table.RefsOf(leaf)) > 0:
		limit = t.windowRows(leaf)
	}
	blocked := len(t.stuck[leaf.OID]) > 0
	var inCycle []dml.Tuple
	for len(t.stuck[leaf.OID]) < mostExcluded {
		if t.Paused(ctx) {
			return hasRows, dml.Yielded, nil
		}
		found, err := w.Children(ctx, t.Read, ref, leaf, slices.Concat(inCycle, t.stuck[leaf.OID]), limit)
		if err != nil {
			result, err := t.handleReadError(w, err)
			return hasRows, result, err
		}
		t.Sizes.learn(windowName(w.Leaf), len(w.Rows), t.Session.Took(), t.Target, largestWindow)
		rows := found
		if ref.Action == dml.Remove || ref.Action == dml.Forbid {
			onStack := t.findOnStack(leaf, found)
			rows, inCycle = found.Without(onStack), append(inCycle, onStack...)
		}
		if ref.Table.Chains() {
			// In a table that refers to itself, a row is usually read after the row that
			// it refers to. Delete in the reverse order.
			slices.Reverse(rows)
		}
		left, result, err := t.drainRows(ctx, w, ref, &dml.Window{Table: ref.Table, Leaf: leaf, Rows: rows})
		if err != nil || result == dml.Yielded {
			return hasRows, result, err
		}
		t.stuck[leaf.OID] = append(t.stuck[leaf.OID], left.Tuples()...)
		hasRows = hasRows || len(found) > 0
		blocked = blocked || result == dml.Blocked || len(inCycle) > 0
		if len(found) < limit || ref.Action == dml.Forbid && len(rows) > 0 {
			return hasRows, blockedIf(blocked), nil
		}
	}
	return hasRows, dml.Blocked, nil
}

// drainRows deletes or changes rows that refer to rows of the window above, as the key's
// action requires. It returns the rows that are left.
func (t *Tree) drainRows(ctx context.Context, above *dml.Window, ref *dml.Ref,
	w *dml.Window,
) (dml.Rows, dml.Result, error) {
	switch {
	case len(w.Rows) == 0:
		return nil, dml.Finished, nil
	case ref.Action == dml.Remove:
		return t.DeleteWindow(ctx, w)
	case ref.Action == dml.Forbid:
		return nil, dml.Blocked, t.recordForbidding(ctx, above, ref, w)
	}
	return t.change(ctx, ref, w)
}

// findOnStack returns the positions of the found rows that are on the stack. It marks
// these rows on the stack as part of a cycle.
func (t *Tree) findOnStack(leaf pgcatalog.Table, found dml.Rows) (tuples []dml.Tuple) {
	among := make(map[dml.Tuple]bool, len(found))
	for _, row := range found {
		among[row.At] = true
	}
	for _, w := range t.Stack {
		if w.Leaf.OID != leaf.OID {
			continue
		}
		for i, row := range w.Rows {
			if !among[row.At] {
				continue
			}
			if tuples = append(tuples, row.At); w.Cycle == nil {
				w.Cycle = map[int]bool{}
			}
			w.Cycle[i] = true
		}
	}
	return tuples
}

// recordForbidding records an obstacle: a row refers to a row of the window above by a
// key with the action Forbid. The obstacle names the first such row.
func (t *Tree) recordForbidding(ctx context.Context, above *dml.Window, ref *dml.Ref, w *dml.Window) error {
	if t.Obstacle.Message != "" {
		return nil
	}
	var shown []string
	err := t.Read(ctx, batch.Statement{
		SQL: dml.ShownStatement(w.Table, w.Leaf), Args: []any{w.Rows[0].At},
		Scan: batch.Collect(&shown, pgx.RowTo[string]),
	})
	if err != nil {
		_, err = t.HandleError(err, ref.Table.Label())
	}
	if len(shown) > 0 {
		t.Obstacle = batch.Fault{Table: ref.Table.Label(), Message: ref.Forbids(above.Table, shown[0])}
	}
	return err
}

// remove deletes those of the window's rows to which no row refers. It returns the rows
// that are left.
func (t *Tree) remove(ctx context.Context, w *dml.Window) (dml.Rows, dml.Result, error) {
	name := fmt.Sprint("remove ", w.Leaf.OID)
	return t.pieces(ctx, w, w.Rows, name, func(ctx context.Context, piece dml.Rows, limits batch.Limits,
		skip bool,
	) (dml.Rows, error) {
		var n, selected int64
		var deleted []dml.Tuple
		var statements []batch.Statement
		if skip || t.Waits || len(w.Table.RefsOf(w.Leaf)) > 0 {
			// A session that is about to insert rows below has a lock on the row. The
			// DELETE needs a snapshot that is newer than its own lock: it must see the
			// rows that this session commits.
			statements = append(statements, batch.Statement{SQL: dml.LockStatement(w.Leaf, skip), Args: piece.Args()})
		}
		statements = append(statements, batch.Statement{
			SQL: t.Owner.RemoveStatement(w.Table, w.Leaf, skip), Args: piece.Args(t.Owner.ID),
			Scan: batch.One(&n, &deleted, &selected),
		})
		if err := t.Alter(ctx, limits, statements...); err != nil {
			return nil, err
		}
		t.countDeleted(w.Table, n, selected)
		if n == int64(len(piece)) {
			return nil, nil
		}
		return piece.Without(deleted), nil
	})
}

// countDeleted counts the deleted rows of a table. selected is the number that
// Owner.Extra selected for them.
func (t *Tree) countDeleted(table *dml.Table, rows, selected int64) {
	t.Changes += rows
	t.Owner.OnDeleted(table, rows, selected)
}

// change applies the key's action to a window's rows, for example sets their columns to
// NULL. If such a row is also on the stack, the stack gets its new version.
func (t *Tree) change(ctx context.Context, ref *dml.Ref, w *dml.Window) (dml.Rows, dml.Result, error) {
	name := fmt.Sprint("change ", w.Leaf.OID, ref.Columns)
	return t.pieces(ctx, w, w.Rows, name, func(ctx context.Context, piece dml.Rows, limits batch.Limits,
		skip bool,
	) (dml.Rows, error) {
		var old, moved, kept []dml.Tuple
		var version []uint32
		var statements []batch.Statement
		if skip {
			statements = append(statements, batch.Statement{SQL: dml.LockStatement(w.Leaf, true), Args: piece.Args()})
		}
		statements = append(statements, batch.Statement{
			SQL: t.Owner.ChangeStatement(ref, w.Leaf, skip), Args: piece.Args(t.Owner.ID),
			Scan: batch.One(&old, &moved, &version, &kept),
		})
		if err := t.Alter(ctx, limits, statements...); err != nil {
			return nil, err
		}
		if n := int64(len(old) - len(kept)); n > 0 {
			t.Changes += n
			t.Owner.OnChanged(ref, n)
		}
		remaining := piece.Without(old)
		if len(kept) > 0 {
			rows := render.Each(kept, func(at dml.Tuple) dml.Row { return dml.Row{At: at} })
			t.CountFailure(UnchangedFault(ref.Table.Label(), strings.Join(ref.Columns, ", ")))
			t.excludeRows(w.Leaf, rows)
			remaining = append(remaining, rows...)
		}
		for _, on := range t.Stack {
			if on.Leaf.OID == w.Leaf.OID {
				on.Rows.Follow(old, moved, version)
			}
		}
		return remaining, nil
	})
}

// UnchangedFault returns the fault of a table whose rows keep the values of a column
// although an UPDATE succeeded.
func UnchangedFault(table, column string) batch.Fault {
	return batch.Fault{Table: table, Verdict: batch.Row, Message: fmt.Sprintf(
		"rows keep their %s although no session has locked them: a trigger, a rule or a default of the table causes it",
		column)}
}

// cascade deletes the rows of a window that are part of a cycle, and all rows below them
// by the actions of the keys. It returns the window's rows that are left. Only a tree
// that waits for locks calls it. The rows outside the cycle are deleted before that, so
// the cycle is small.
func (t *Tree) cascade(ctx context.Context, w *dml.Window, left dml.Rows) (dml.Rows, dml.Result, error) {
	var cycle dml.Rows
	for i := range w.Cycle {
		cycle = append(cycle, w.Rows[i])
	}
	outside := left.Without(cycle.Tuples())
	cycle = left.Without(outside.Tuples())
	kept, result, err := t.pieces(ctx, w, cycle, fmt.Sprint("cascade ", w.Leaf.OID),
		func(ctx context.Context, piece dml.Rows, limits batch.Limits, _ bool) (dml.Rows, error) {
			top := &dml.Window{Table: w.Table, Leaf: w.Leaf, Rows: piece}
			c, err := t.Cycle(ctx, top)
			if err != nil || c == nil {
				return piece, err
			}
			var n, selected int64
			var deleted []dml.Tuple
			deletion := batch.Statement{
				SQL:  t.Owner.CascadeStatement(w.Table, w.Leaf),
				Args: piece.Args(t.Owner.ID, c.Rows-len(piece)), Scan: batch.One(&n, &deleted, &selected),
			}
			if err = t.Alter(ctx, limits, c.Around(deletion)...); err != nil {
				return piece, c.Failed(err)
			}
			t.countDeleted(w.Table, int64(len(piece)), selected)
			c.CountDeleted()
			return nil, nil
		})
	return append(outside, kept...), max(result, blockedIf(len(outside) > 0)), err
}

// Cycle is a set of rows that refer to each other, with all rows below them. One
// statement deletes the set by the actions of the keys.
type Cycle struct {
	dml.Closure

	tree     *Tree
	selected []int64
}

// Cycle finds all rows that are deleted with the rows of the window top. It returns nil
// if a row of the stack is among them: the deletion must then begin with that row.
func (t *Tree) Cycle(ctx context.Context, top *dml.Window) (*Cycle, error) {
	closure, err := top.Expand(ctx, t.Read, mostInCycle)
	if err != nil {
		return nil, err
	}
	if closure.Incomplete {
		return nil, &batch.FaultError{Fault: batch.Fault{
			Verdict: batch.Row, Message: fmt.Sprintf("more than %d rows refer to each other in a cycle", mostInCycle),
		}}
	}
	if slices.ContainsFunc(t.Stack, closure.Has) {
		return nil, nil //nolint:nilnil // documented
	}
	return &Cycle{Closure: closure, tree: t, selected: make([]int64, len(closure.Windows))}, nil
}

// Around returns the statements of a transaction that deletes the cycle. deletion must
// delete the rows at the top. The statements before it fail unless all rows are as they
// were found and the keys' actions delete all rows below them. They also do the owner's
// further work. The statements after it fail if a row is left.
func (c *Cycle) Around(deletion ...batch.Statement) (all []batch.Statement) {
	owner := &c.tree.Owner
	for i, w := range c.Windows {
		all = append(all, batch.Statement{SQL: dml.HoldStatement(w.Leaf, "FOR UPDATE"), Args: w.Rows.Args()})
		if extra := owner.Extra(w.Table); i > 0 && extra.CTE != "" {
			all = append(all, batch.Statement{
				SQL: owner.ExtraStatement(w.Table, w.Leaf), Args: w.Rows.Args(owner.ID),
				Scan: batch.One(new(int64), &c.selected[i]),
			})
		}
	}
	// Locking the rows may have waited for a session that inserted rows which no key's
	// action deletes.
	all = append(append(all, c.RequireCascades()...), deletion...)
	for _, w := range c.Windows {
		all = append(all, batch.Statement{SQL: dml.RequireDeletedStatement(w.Leaf), Args: w.Rows.Args()})
	}
	return all
}

// Failed handles an error of the transaction of Around. It records an obstacle and
// returns nil if a row changed or was left, or if another row forbids the deletion.
// Otherwise it returns the error.
func (c *Cycle) Failed(err error) error {
	switch f := batch.Judge(err); {
	case f.SQLState == batch.Unmet:
		c.tree.leftCycle = true
		c.tree.Obstacle = batch.Fault{
			Table:   c.Windows[0].Table.Label(),
			Message: "rows that refer to each other in a cycle keep changing, or a trigger or rule keeps them",
		}
		return nil
	case f.SQLState == "23503" || f.SQLState == "23001":
		if f.Table = c.Windows[0].Table.Label(); c.tree.Obstacle.Message == "" {
			c.tree.Obstacle = f
		}
		return nil
	case f.Verdict == batch.Timeout:
		f.Message = fmt.Sprintf("%d rows that refer to each other in a cycle must be deleted by one statement, which takes too long: %s", c.Rows, f.Message)
		return &batch.FaultError{Fault: f}
	}
	return err
}

// RetryCycle reports whether a cycle should be tried again immediately. A cycle is left
// if a row was changed or inserted after the cycle was read. A trigger or rule that keeps
// rows looks the same, so the number of retries in a row is limited.
func (t *Tree) RetryCycle() bool {
	if !t.leftCycle || t.cycleRetries >= mostConflicts {
		return false
	}
	t.cycleRetries++
	return true
}

// CountDeleted counts the deleted rows of the cycle, except the rows at the top.
func (c *Cycle) CountDeleted() {
	c.tree.cycleRetries = 0
	for i, w := range c.Windows[1:] {
		c.tree.countDeleted(w.Table, int64(len(w.Rows)), c.selected[i+1])
	}
}

// changePieceFunc deletes or changes rows in one transaction and returns the rows that
// are left. If skip is set, it skips rows that other sessions have locked.
type changePieceFunc func(ctx context.Context, piece dml.Rows, limits batch.Limits, skip bool) (dml.Rows, error)

// pieces calls do for as many rows at a time as fit the target. After a timeout it uses
// fewer rows, after a lock timeout it skips locked rows, and after another failure it
// bisects the rows until the failing row is isolated. It returns the rows that are left.
func (t *Tree) pieces(ctx context.Context, w *dml.Window, rows dml.Rows, name string,
	do changePieceFunc,
) (left dml.Rows, _ dml.Result, _ error) {
	skip, conflicts, most := false, 0, mostRows
	for len(rows) > 0 {
		if t.Paused(ctx) {
			return append(left, rows...), dml.Yielded, nil
		}
		n := min(t.Sizes.get(name, cmp.Or(t.Rows, firstRows)), most, len(rows))
		limits := t.limits(n)
		judge := t.Watch(ctx, limits)
		remaining, err := do(ctx, rows[:n], limits, skip)
		f := judge(err)
		f.Table = w.Table.Label()
		switch {
		case err == nil:
			t.Sizes.learn(name, n, t.Session.Took(), t.Pace.Shortened(t.Target), mostRows)
			left, rows = append(left, remaining...), rows[n:]
			conflicts, most = 0, min(2*most, mostRows)
			t.Progress(ctx)
			t.Pace.PauseAfterBatch(ctx, t.Session.Took())
		case f.Verdict == batch.Fatal:
			return append(left, rows...), dml.Blocked, err
		case t.Pace.Ended():
			return append(left, rows...), dml.Yielded, nil
		case f.Verdict == batch.Hopeless:
			t.CountFailure(f)
			return append(left, rows...), dml.Blocked, nil
		case f.Lock() && !t.Waits && !skip:
			skip = true
		case f.Verdict == batch.Conflict && conflicts < mostConflicts:
			conflicts++
		case n > 1:
			if most = (n + 1) / 2; f.Verdict == batch.Timeout {
				t.Sizes.shrink(name, n)
			}
		default:
			if left, rows = append(left, rows[0]), rows[1:]; f.Lock() {
				t.Obstacle = f
			} else {
				t.CountFailure(f)
				t.excludeRows(w.Leaf, left[len(left)-1:])
			}
		}
	}
	return left, blockedIf(len(left) > 0), nil
}

// limits returns the timeouts of a statement with n rows. A single row gets the session's
// full statement timeout. If Waits is set, every statement gets both of the session's
// timeouts.
func (t *Tree) limits(n int) batch.Limits {
	limits := t.ShortWaits()
	if n > 1 && !t.Waits {
		limits.StatementTimeout = min(limits.StatementTimeout, max(cutoffs*t.Target, shortestCutoff))
	}
	return limits
}

// ShortWaits returns the session's limits with a short lock timeout, unless Waits is set.
func (t *Tree) ShortWaits() batch.Limits {
	if t.Waits {
		return t.Session.Limits
	}
	return t.Session.Limits.ShortWaits()
}

// Watch searches for the session that a batch with these limits waits for. The caller
// must call the returned function with the batch's error. That function ends the search
// and returns the fault, with the name of the session.
func (t *Tree) Watch(ctx context.Context, limits batch.Limits) func(error) batch.Fault {
	end := func() string { return "" }
	if limits.LockTimeout > pace.ReportAfter {
		end = t.Pace.Watch(ctx, "")
	}
	return func(err error) batch.Fault {
		blocker, f := end(), batch.Judge(err)
		if f.Lock() {
			t.Pace.Locked()
		}
		return f.WithBlocker(blocker)
	}
}

// excludeRows excludes rows until the end of the run.
func (t *Tree) excludeRows(leaf pgcatalog.Table, rows dml.Rows) {
	t.failed[leaf.OID] = append(t.failed[leaf.OID], rows.Tuples()...)
}

// CountFailure counts and reports a fault of rows that are excluded until the end of the
// run.
func (t *Tree) CountFailure(f batch.Fault) {
	t.Owner.Failed(f)
	t.Failures++
	if t.Fault == nil {
		t.Fault = &f
	}
}

// HandleError handles an error that no single row caused. A fatal error ends the run.
// Otherwise the rows are left for later.
func (t *Tree) HandleError(err error, table string) (dml.Result, error) {
	return t.HandleFault(batch.Judge(err), err, table)
}

// HandleFault handles an error like HandleError. f is the verdict of batch.Judge on the
// error.
func (t *Tree) HandleFault(f batch.Fault, err error, table string) (dml.Result, error) {
	if errors.Is(err, ErrCancelled) {
		return dml.Blocked, err
	}
	f.Table = table
	if !f.Lock() {
		t.Owner.Failed(f)
	}
	switch {
	case f.Verdict == batch.Fatal:
		return dml.Blocked, err
	case t.Pace.Ended():
		return dml.Yielded, nil
	case f.Lock() || f.Verdict == batch.Timeout:
		t.Obstacle = f
	case t.Fault == nil:
		t.Fault = &f
	}
	return dml.Blocked, nil
}
