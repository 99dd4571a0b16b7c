package retention

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/pace"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

const (
	// windowRows limits the due rows that one query returns. topRows is the limit if
	// other tables reference the due rows, because each batch that deletes rows below
	// them locks all rows of the window.
	windowRows, topRows = 10_000, 500
	// lastRows limits the rows of a window in the second round, which waits for locks.
	// lockWait limits each wait for a lock.
	lastRows, lockWait = 20, 500 * time.Millisecond
	// smallWindow is the smallest limit that is tried after a query has timed out.
	smallWindow = 100
	// scannedPages is the number of pages that a scan is expected to read per second.
	scannedPages = 12_000
	// mostExcluded limits the rows with the same value that a query excludes.
	mostExcluded = 10_000
	// mostChanges limits consecutive retries of a single row that has changed since the
	// read.
	mostChanges = 20
	// firstDirect and mostDirect are the initial and the largest row limit of a direct
	// statement.
	firstDirect, mostDirect = 1000, 50_000
	// reserve is the part of the lease that is left for the last statements of a pass.
	reserve = time.Second
	// defaultTarget is the target if the engine has none.
	defaultTarget = 20 * time.Millisecond
)

// Engine deletes the due rows of one database.
type Engine struct {
	Session *batch.Session
	Plan    *Plan
	// Runtime limits a pass. A pass also ends before its lease expires.
	Runtime time.Duration
	// Target is the time that one statement should take. Duty is the share of its time
	// that a pass works. 0 means that it works without pauses.
	Target   time.Duration
	Duty     float64
	Throttle pace.Throttle
	// Progress, if set, is called with the statistics after every batch, and when the
	// reason to wait changes. It must not retain them.
	Progress func(ctx context.Context, stats *Stats)
	// PartlyCleared, if set, is called for a row that was restored while rows below it
	// were deleted.
	PartlyCleared func(ctx context.Context, rule, table, row string)
}

// run is the state of one pass.
type run struct {
	*Engine

	frame *pace.Frame
	pace  *pace.Run
	stats *Stats
	// now is the server's time when the pass began.
	now time.Time
}

// task is the work of a pass on one rule.
type task struct {
	*rule

	tree   *drain.Tree
	cutoff any
	// resumed is the value after which the task began. Rows up to resumed are read last.
	resumed any
	// leaves are the leaves with due rows. The leaf with the oldest row is first. at is
	// the position in the first leaf. size is the row limit of the next window.
	leaves []pgcatalog.Table
	begun  bool
	at     position
	size   int
	// directDone reports that no further direct statement is tried on the first leaf.
	directDone bool
	// again is set in the second round over a leaf. That round waits for locks and
	// deletes rows that refer to each other in a cycle.
	again bool
	// cycle reports that the pass left rows of the leaf that refer to each other in a
	// cycle.
	cycle bool
	// changes counts consecutive reads of a single row that changed before it was
	// deleted.
	changes int
	// left counts the rows of the first leaf that could not be deleted in this round.
	// kept counts the rows of all leaves that could not be deleted. obstacle is the last
	// reason.
	left, kept int64
	obstacle   batch.Fault
	// stopped reports that too many rows failed, or that the table cannot be changed.
	stopped bool
}

// Run deletes due rows until none is left, the runtime has expired, or ctx ends. It first
// finishes a batch that is running when ctx ends. A row or rule that fails is left for
// the next pass, and the others continue. The statistics are also valid with an error.
// The error wraps lease.ErrLost if another worker has taken the lease.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	r := &run{Engine: e, stats: newStats()}
	e.Session.Limits.LockTimeout = min(e.Session.Limits.LockTimeout, lockWait)
	err := pace.Under(ctx, e.Session, e.Runtime, max(reserve, e.Session.Limits.StatementTimeout), r.work)
	r.stats.Rule, r.stats.WaitingFor, r.stats.Duty = "", "", pace.Duty{}
	return r.stats, err
}

func (r *run) work(ctx context.Context, frame *pace.Frame) error {
	r.frame = frame
	throttle := r.Throttle
	throttle.Share = throttle.Share.Configured(r.Duty, func(d pace.Duty) { r.stats.Duty = d })
	r.pace = &pace.Run{
		Until: frame.Until, Stop: frame.Stop, Ended: frame.Ended, Target: cmp.Or(r.Target, defaultTarget),
		Throttle: throttle, Waits: r.waits,
	}
	waiting, err := r.begin(ctx)
	if err != nil {
		return err
	}
	for len(waiting) > 0 && !frame.Ended() {
		t := waiting[0]
		r.stats.Rule = t.String()
		done, err := r.clean(ctx, t)
		if err != nil {
			return fmt.Errorf("delete rows of %s: %w", t, err)
		}
		if !done {
			break
		}
		waiting = waiting[1:]
		r.stats.Rules++
		if err := r.finish(ctx, t, true); err != nil {
			return err
		}
	}
	// The next pass begins with the rule that was recorded the longest ago. The
	// unfinished rule is recorded last, so that the next pass ends with it.
	for _, t := range append(waiting[min(1, len(waiting)):], waiting[:min(1, len(waiting))]...) {
		if err := r.finish(ctx, t, false); err != nil {
			return err
		}
	}
	r.stats.Interrupted = len(waiting) > 0 && frame.Stop.Err() != nil
	r.stats.OverLimit = len(waiting) > 0 && !r.stats.Interrupted
	return nil
}

func (r *run) waits(ctx context.Context, class pace.WaitClass, reason string) {
	if class == pace.WaitLock && reason != "" {
		r.stats.Held = reason
	}
	if r.stats.WaitingFor != reason {
		r.stats.WaitingFor = reason
		r.progress(ctx)
	}
}

func (r *run) progress(ctx context.Context) {
	if r.Progress != nil {
		r.Progress(ctx, r.stats)
	}
}

// paused waits until the throttle permits more work, and reports whether the pass must
// end.
func (r *run) paused(ctx context.Context) bool {
	r.pace.Await(ctx)
	return r.frame.Ended()
}

func (r *run) send(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
	_, err := r.Session.RunWithin(ctx, pace.Within(limits, r.frame.Deadline), statements...)
	return err
}

// newTask returns the task for a rule. The task begins with the rows whose column is
// greater than after.
func (r *run) newTask(of *rule, after any) *task {
	t := &task{rule: of, cutoff: of.cutoff(r.now), resumed: after}
	t.tree = &drain.Tree{
		Session: r.Session, Owner: r.owner(t), Target: r.pace.Target, Pace: r.pace, Send: r.send, Paused: r.paused,
		Alter: func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
			return r.alter(ctx, t, limits, statements...)
		},
		Progress: func(ctx context.Context) {
			r.stats.Batches++
			r.progress(ctx)
		},
	}
	return t
}

// owner returns the Owner that counts rows in the statistics and writes the rule's event.
func (r *run) owner(t *task) dml.Owner {
	const untyped = "owner AS (SELECT $3::bigint)" // Postgres rejects parameters without a type.
	return dml.Owner{
		ID: int64(0), Deleted: untyped, Changed: untyped,
		Extra: func(of *dml.Table) dml.Extra {
			if of != t.table || !t.Event {
				return dml.Extra{}
			}
			return dml.Extra{
				Returning: []string{batch.RowKey("target", t.edge.PrimaryKey, t.EventColumns) + " AS key"},
				CTE: "event AS (" + batch.DeletedRows(r.Session.Names, of.Label(), "", "deleted",
					t.EventColumns) + ")",
			}
		},
		OnDeleted: func(of *dml.Table, rows, _ int64) { r.stats.Deleted[of.Label()] += rows },
		OnChanged: func(f *dml.Ref, rows int64) { r.stats.Nullified[f.Label()] += rows },
		Failed: func(f batch.Fault) {
			f.Table = cmp.Or(f.Table, t.table.Label())
			r.stats.Errors = batch.CountFault(r.stats.Errors, f)
		},
	}
}

// topError reports that a due row has changed since it was read, or that another session
// has locked it. No row below it may be deleted then.
type topError struct{ batch.Fault }

func (e *topError) Error() string { return e.Message }

// alter runs a transaction that deletes or changes rows. If the rows are below due rows,
// the transaction also locks the due rows and checks that they have not changed since
// they were read. It locks the rows below first, because applications and triggers that
// maintain counters lock them in the same order.
func (r *run) alter(ctx context.Context, t *task, limits batch.Limits, statements ...batch.Statement) error {
	top := -1
	if stack := t.tree.Stack; len(stack) > 0 {
		top = slices.IndexFunc(statements, func(s batch.Statement) bool { return s.Scan != nil })
		statements = slices.Insert(slices.Clone(statements), top, batch.Statement{
			SQL: dml.HoldStatement(stack[0].Leaf, "FOR NO KEY UPDATE"), Args: stack[0].Rows.Args(),
		})
	}
	err := r.send(ctx, limits, statements...)
	f := batch.Judge(err)
	if failed, ok := errors.AsType[*batch.StatementError](err); ok && top >= 0 && failed.Index == top &&
		(f.SQLState == batch.Unmet || f.Lock()) {
		f.Table = t.table.Label()
		return &topError{f}
	}
	return err
}

// clean deletes the due rows of a rule. It returns false if rows are left because the
// pass ends.
func (r *run) clean(ctx context.Context, t *task) (done bool, _ error) {
	t.begun = true
	if t.DryRun {
		return true, nil
	}
	t.tree.Restart()
	if err := r.findLeaves(ctx, t); err != nil || r.frame.Ended() {
		return false, err
	}
	for len(t.leaves) > 0 || t.resumed != nil {
		if len(t.leaves) == 0 {
			// The rows before the value with which the task began are read last.
			t.resumed, t.kept = nil, 0
			if err := r.findLeaves(ctx, t); err != nil || r.frame.Ended() {
				return false, err
			}
			continue
		}
		if r.paused(ctx) {
			return false, nil
		}
		if !t.directDone && len(t.table.RefsOf(t.leaves[0])) == 0 {
			if yielded, err := r.deleteDirectly(ctx, t); yielded || err != nil {
				return false, err
			}
		}
		rows, err := r.read(ctx, t)
		if leaf := t.leaves[0]; err != nil {
			if batch.Judge(err).Verdict == batch.Timeout && !r.frame.Ended() && t.size > smallWindow &&
				!slices.Contains(t.unindexed, leaf.OID) {
				t.size = max(t.size/8, smallWindow)
				continue
			}
			if err := r.readFailed(t, leaf, err); err != nil {
				return false, err
			}
			t.endLeaf()
			continue
		}
		if len(rows) == 0 {
			t.endRound()
			continue
		}
		full := len(rows) == t.size
		yielded, err := r.take(ctx, t, rows)
		switch {
		case err != nil:
			return false, err
		case yielded:
			return false, nil
		case t.tree.Failures >= drain.MostFailures, t.tree.Fault != nil && t.tree.Fault.Verdict == batch.Hopeless:
			t.kept, t.stopped = t.kept+t.left, true
			return true, nil
		case t.again && t.obstacle.Lock():
			// The next pass retries the locked rows and the rows after them.
			t.endLeaf()
		case !full && t.changes == 0:
			t.endRound()
		}
	}
	return true, nil
}

// findLeaves finds the leaves with due rows and sorts them by their oldest due row. It
// leaves out leaves that have no index and are too large to scan, and records the reason.
func (r *run) findLeaves(ctx context.Context, t *task) error {
	t.restart()
	var large []uint32
	if len(t.unindexed) > 0 {
		most := int64(r.Session.Limits.StatementTimeout.Seconds() * scannedPages)
		err := t.tree.Read(ctx, batch.Statement{
			SQL: "SELECT oid FROM pg_catalog.pg_class WHERE oid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.oid[]) " +
				"AND relpages OPERATOR(pg_catalog.>) $2::pg_catalog.int8",
			Args: []any{t.unindexed, most}, Scan: batch.Collect(&large, pgx.RowTo[uint32]),
		})
		if err := r.ifFatal(err); err != nil {
			return err
		}
	}
	oldest := map[uint32]any{}
	for _, leaf := range t.edge.Leaves {
		if r.frame.Ended() {
			break
		}
		if slices.Contains(large, leaf.OID) {
			r.hold(t, batch.Fault{
				Table: leaf.Label(), Verdict: batch.Unavailable,
				Message: "no index finds the due rows, and the table is too large to scan: " + t.createIndex(leaf),
			})
			continue
		}
		if len(t.edge.Leaves) == 1 {
			oldest[leaf.OID] = nil
			break
		}
		sql, args := t.oldest(leaf, t.cutoff, t.at)
		found, err := dml.Select(ctx, t.tree.Read, pgx.RowTo[any], sql, args...)
		switch {
		case err != nil:
			if err := r.readFailed(t, leaf, err); err != nil {
				return err
			}
		case len(found) > 0:
			oldest[leaf.OID] = finite(found[0])
		}
	}
	t.leaves = slices.DeleteFunc(slices.Clone(t.edge.Leaves),
		func(leaf pgcatalog.Table) bool { _, due := oldest[leaf.OID]; return !due })
	slices.SortStableFunc(t.leaves, func(a, b pgcatalog.Table) int { return compare(oldest[a.OID], oldest[b.OID]) })
	return nil
}

// restart sets the position to the beginning of the first leaf.
func (t *task) restart() {
	t.at = position{value: t.resumed, after: t.resumed != nil}
	t.size, t.left, t.changes = t.mostRows(), 0, 0
}

// mostRows returns the maximum number of rows in a window.
func (t *task) mostRows() int {
	switch {
	case t.again:
		return lastRows
	case len(t.table.Refs) > 0:
		return topRows
	}
	return windowRows
}

// endRound ends a round over the first leaf. If rows are left in a cycle or for an
// unknown reason, it starts the second round.
func (t *task) endRound() {
	if t.left > 0 && !t.again && (t.cycle || t.obstacle.Message == "" && t.tree.Fault == nil) {
		t.again, t.tree.Waits = true, true
		t.restart()
		return
	}
	t.endLeaf()
}

func (t *task) endLeaf() {
	t.kept += t.left
	t.leaves = t.leaves[1:]
	t.again, t.tree.Waits, t.directDone, t.cycle = false, false, false, false
	t.restart()
}

// deleteDirectly deletes the due rows of the first leaf with one statement per batch. No
// row may reference the leaf. It stops at an error. The tree then reads and deletes the
// remaining rows, and handles locks and failing rows.
func (r *run) deleteDirectly(ctx context.Context, t *task) (yielded bool, _ error) {
	leaf := t.leaves[0]
	for {
		if r.paused(ctx) {
			return true, nil
		}
		var last []any
		var deleted int64
		retry, err := t.tree.Sized(ctx, fmt.Sprint("direct ", leaf.OID), firstDirect, mostDirect,
			func(n int, limits batch.Limits) error {
				bound := t.last(leaf, t.cutoff, t.at, n)
				deletion := t.rule.direct(r.Session.Names, leaf, t.cutoff, t.at, n)
				bound.Scan = batch.Collect(&last, pgx.RowTo[any])
				if t.Event {
					deletion.Scan = batch.One(&deleted)
				}
				affected, err := r.Session.RunWithin(ctx, pace.Within(limits, r.frame.Deadline), bound, deletion)
				if err == nil && !t.Event {
					deleted = affected[1]
				}
				return err
			})
		switch {
		case retry:
			continue
		case err != nil && batch.Judge(err).Verdict == batch.Fatal:
			return false, err
		case err == nil && deleted > 0:
			t.tree.Changes += deleted
			t.tree.Owner.OnDeleted(t.table, deleted, 0)
			t.tree.Progress(ctx)
		}
		if err != nil || deleted == 0 || len(last) == 0 {
			t.directDone = true
			t.restart()
			return false, nil //nolint:nilerr // The tree retries the rows and reports the error.
		}
		if value := finite(last[0]); value != nil {
			t.at.value, t.at.after = value, false
		}
	}
}

// read returns the next due rows of the first leaf.
func (r *run) read(ctx context.Context, t *task) ([]row, error) {
	sql, args := t.window(t.leaves[0], t.cutoff, t.at, t.size)
	return dml.Select(ctx, t.tree.Read, scanRow, sql, args...)
}

// readFailed returns a fatal error of a query for due rows. After any other error it
// leaves the due rows of the leaf for the next pass.
func (r *run) readFailed(t *task, leaf pgcatalog.Table, err error) error {
	f := batch.Judge(err)
	f.Table = leaf.Label()
	if f.Verdict == batch.Fatal {
		return err
	}
	if f.Verdict == batch.Timeout {
		f.Message = "the query for due rows exceeds jobs.statement_timeout: " + t.createIndex(leaf)
	}
	r.hold(t, f)
	return nil
}

// hold leaves the due rows of a leaf for the next pass, and records the reason.
func (r *run) hold(t *task, f batch.Fault) {
	if f.Lock() {
		r.stats.Held = f.Text()
	} else {
		t.tree.Owner.Failed(f)
	}
	t.obstacle, t.kept = f, t.kept+1
}

// take deletes the rows below a window and then the window's rows, and advances the
// position. yielded reports that rows are left because the pass was paused.
func (r *run) take(ctx context.Context, t *task, rows []row) (yielded bool, _ error) {
	leaf, tree := t.leaves[0], t.tree
	w, known := t.table.Window(leaf.OID, render.Each(rows, func(one row) dml.Row { return one.Row }))
	if !known {
		return false, fmt.Errorf("%s is not a partition of %s", leaf.Label(), t.table.Label())
	}
	tree.Restart()
	before := tree.Changes
	left, result, err := tree.DeleteWindow(ctx, w)
	t.cycle = t.cycle || len(w.Cycle) > 0
	top, held := errors.AsType[*topError](err)
	if err != nil && !held {
		return false, err
	}
	if len(left) > 0 && tree.Changes > before && len(t.table.RefsOf(leaf)) > 0 {
		if err := r.findRestored(ctx, t, leaf, rows, left); err != nil {
			return false, err
		}
	}
	switch {
	case held && len(rows) > 1:
		// One of the rows is locked or has changed. A smaller window isolates it.
		t.size, t.changes = max(1, len(rows)/2), 1
		return false, nil
	case held && !top.Lock() && t.changes < mostChanges:
		t.changes++
		return false, nil
	case held:
		t.obstacle = top.Fault
		if !top.Lock() {
			t.obstacle.Message = "other sessions keep changing the row: " + rows[0].shown
		}
	case result == dml.Yielded:
		return true, nil
	case tree.RetryCycle():
		t.changes++
		return false, nil
	case tree.Obstacle.Message != "":
		t.obstacle = tree.Obstacle
	}
	if tree.Obstacle.Lock() || held && top.Lock() {
		r.stats.Held = t.obstacle.Text()
	}
	t.changes, t.size, t.left = 0, min(2*t.size, t.mostRows()), t.left+int64(len(left))
	t.advance(rows, left)
	return false, nil
}

// advance moves the position to the last value of rows. The next query excludes the rows
// with that value that could not be deleted.
func (t *task) advance(rows []row, left dml.Rows) {
	last := finite(rows[len(rows)-1].value)
	// A trigger that updates the row instead of deleting it gives the row another ctid,
	// so the query cannot exclude it. The second round then skips all rows with the
	// value.
	stuck := t.again && len(left) == len(rows) && compare(last, t.at.value) == 0
	if compare(last, t.at.value) != 0 {
		t.at.except = nil
	}
	t.at.value, t.at.after = last, false
	remains := map[dml.Tuple]bool{}
	for _, one := range left {
		remains[one.At] = true
	}
	for _, one := range rows {
		if remains[one.At] && compare(finite(one.value), last) == 0 {
			t.at.except = append(t.at.except, one.At)
		}
	}
	if stuck || len(t.at.except) >= mostExcluded {
		t.at.after, t.at.except = true, nil
	}
}

// findRestored reports the rows that could not be deleted and are no longer due. Rows
// below them may have been deleted.
func (r *run) findRestored(ctx context.Context, t *task, leaf pgcatalog.Table, rows []row, left dml.Rows) error {
	same, err := dml.Select(ctx, t.tree.Read, pgx.RowTo[dml.Tuple], unchangedSQL(leaf), left.Args()...)
	if err != nil {
		return r.ifFatal(err)
	}
	changed := map[dml.Tuple]bool{}
	for _, one := range left.Without(same) {
		changed[one.At] = true
	}
	for _, one := range rows {
		if !changed[one.At] || len(one.key) == 0 {
			continue
		}
		sql, args := t.stillDue(leaf, t.cutoff, one.key)
		due, err := dml.Select(ctx, t.tree.Read, pgx.RowTo[bool], sql, args...)
		if err != nil {
			return r.ifFatal(err)
		}
		if len(due) == 0 || due[0] {
			continue
		}
		r.stats.PartlyCleared++
		if r.PartlyCleared != nil {
			r.PartlyCleared(ctx, t.String(), t.table.Label(), one.shown)
		}
	}
	return nil
}

// unchangedSQL returns the query for the ctids of rows that have not changed since they
// were read.
func unchangedSQL(leaf pgcatalog.Table) string {
	return fmt.Sprintf(`SELECT target.ctid FROM ONLY %s AS target
JOIN unnest($1::pg_catalog.tid[], $2::pg_catalog.xid[]) AS wanted (at, version)
	ON target.ctid OPERATOR(pg_catalog.=) wanted.at AND target.xmin OPERATOR(pg_catalog.=) wanted.version
WHERE target.ctid OPERATOR(pg_catalog.=) ANY ($1)`, leaf.SQL())
}

// ifFatal returns err if it is fatal, and otherwise nil. It is used for queries whose
// results are only reported.
func (r *run) ifFatal(err error) error {
	if batch.Judge(err).Verdict == batch.Fatal {
		return err
	}
	return nil
}
