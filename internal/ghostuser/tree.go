package ghostuser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/render"
)

const (
	// treeRows is the number of rows of a step that are deleted together, with all rows
	// below them.
	treeRows = 500
	// treeTarget is the time that one statement should take if Sizes.Target is 0.
	treeTarget = 20 * time.Millisecond
	// mostRounds limits how often clearWindows repeats a step because rows were inserted
	// again after all were deleted, or because other sessions changed the rows.
	mostRounds = 20
)

// tree deletes rows of one user children first, along native foreign keys.
type tree struct {
	*drain.Tree

	r     *run
	u     *user
	below map[uint32]*dml.Table
}

// treeOf returns a function that deletes a user's rows of a step in one leaf. The
// function deletes each row after all rows below it.
func (r *run) treeOf(s *step,
	leaf Table,
) func(context.Context, *drain.TreeSession, drain.Tombstone, []pgtype.TID) error {
	return func(ctx context.Context, in *drain.TreeSession, t drain.Tombstone, only []pgtype.TID) error {
		tree, root, err := r.tree(ctx, in, t, s, s.Child)
		if err != nil {
			return err
		}
		edge := s.Edge
		if only != nil {
			edge.Where = "child.ctid OPERATOR(pg_catalog.=) ANY ('{" +
				strings.Join(render.Each(only, func(at pgtype.TID) string {
					return fmt.Sprintf(`"(%d,%d)"`, at.BlockNumber, at.OffsetNumber)
				}), ",") + "}'::pg_catalog.tid[])"
		}
		keys, before := dml.Keys{Of: &r.Plan.key, Values: dml.KeysOf(r.Plan.key.Integer, tree.u.userID)}, tree.Changes
		err = tree.clearWindows(ctx, true, func() (*dml.Window, error) {
			sql, args := edge.Window(leaf, "picked.ctid, picked.xmin", "", keys, treeRows)
			return tree.window(ctx, root, leaf, sql, args)
		}, tree.DeleteWindow)
		if err == nil && only != nil && tree.Changes > before {
			// A trigger may have updated one of these rows, which gives it another ctid.
			// The user yields, so that the rows are read again.
			return drain.ErrYield
		}
		return err
	}
}

// clearUser deletes rows that refer to the user by foreign keys without a step. Such keys
// refer to several columns of users, or to another column than the key.
func (r *run) clearUser(ctx context.Context, in *drain.TreeSession, t drain.Tombstone) error {
	users := r.Plan.users
	tree, root, err := r.tree(ctx, in, t, nil, users)
	if err != nil {
		return err
	}
	for _, leaf := range root.Leaves {
		refs := slices.DeleteFunc(root.RefsOf(leaf), func(f *dml.Ref) bool {
			return slices.Equal(f.Targets, r.Plan.key.KeyColumns) ||
				slices.ContainsFunc(r.Plan.steps(tree.u.hardDelete), func(s *step) bool {
					return s.Child.OID == f.Table.OID && slices.Contains(f.Columns, s.column())
				})
		})
		if len(refs) == 0 {
			continue
		}
		err := tree.clearWindows(ctx, false, func() (*dml.Window, error) {
			return tree.window(ctx, root, leaf, fmt.Sprintf(
				"SELECT picked.ctid, picked.xmin FROM ONLY %s AS picked WHERE %s",
				leaf.SQL(), r.Plan.is("picked", r.Plan.value(1))), []any{r.Plan.key.Argument(tree.u.userID)})
		}, func(ctx context.Context, w *dml.Window) (dml.Rows, dml.Result, error) {
			ended, err := tree.Clear(ctx, w, refs)
			if ended == dml.Finished {
				return nil, ended, err
			}
			return w.Rows, ended, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// window reads the rows of a leaf that a statement selects, with their versions. It
// returns nil if it finds no rows.
func (t *tree) window(ctx context.Context, root *dml.Table, leaf Table, sql string, args []any) (*dml.Window, error) {
	rows, err := dml.Select(ctx, t.Read, dml.ScanRow, sql, args...)
	if err != nil {
		return nil, err
	}
	w, known := root.Window(leaf.OID, rows)
	if len(rows) == 0 || !known {
		return nil, nil //nolint:nilnil // documented: there are no rows
	}
	return w, nil
}

// clearWindows calls attempt with the windows that read returns, until read returns nil
// or attempt changes nothing. deletes reports that attempt also deletes the window's
// rows.
//
// The application, or a trigger on rows below, may change the rows of a window at any
// time. clearWindows therefore reads the rows again before each attempt, and a row fails
// only if it has not changed since it was read. Locked rows and cycles of rows are
// handled last.
func (t *tree) clearWindows(
	ctx context.Context, deletes bool, read func() (*dml.Window, error),
	attempt func(context.Context, *dml.Window) (dml.Rows, dml.Result, error),
) error {
	t.Waits = false
	var firstObstacle batch.Fault
	for changed, rounds, all := 0, 0, false; !t.Paused(ctx); {
		w, err := read()
		if err != nil || w == nil {
			return err
		}
		if all {
			rounds++
		}
		if rounds > mostRounds {
			return fault(drain.RefilledFault(w.Table.Label()))
		}
		t.Fault = nil
		t.Restart()
		before := t.Changes
		left, ended, err := attempt(ctx, w)
		top, topFailed := errors.AsType[*topError](err)
		switch {
		case errors.Is(err, drain.ErrCancelled):
			// The user's deletion was canceled. Its completion finds no queue row and
			// reports the cancellation.
			return nil
		case topFailed && top.Lock() && t.Waits:
			return fault(top.Fault)
		case err != nil && !topFailed:
			return err
		case ended == dml.Yielded:
			return drain.ErrYield
		case t.Fault != nil:
			return fault(*t.Fault)
		case t.Changes > before:
			// The window contained all remaining rows of the step, so each further window
			// has reinserted rows.
			changed, all = 0, deletes && len(left) == 0 && len(w.Rows) < treeRows
			continue
		case !topFailed && len(left) == 0:
			return nil
		}
		if !topFailed {
			same, err := dml.Select(ctx, t.Read, pgx.RowTo[bool], dml.UnchangedStatement(w.Leaf), w.Rows.Args()...)
			if err != nil {
				return err
			}
			topFailed = !same[0]
		}
		switch changed++; {
		case topFailed && changed > mostRounds:
			return fault(batch.Fault{
				Table: w.Table.Label(), Message: "other sessions keep changing the rows",
				Verdict: batch.Conflict,
			})
		case topFailed && !top.lock():
		case !t.Waits:
			t.Waits, firstObstacle = true, t.Obstacle
		case t.RetryCycle():
		// The first obstacle is the cause. Later ones are at rows above the slow row.
		case firstObstacle.Verdict == batch.Timeout:
			return fault(firstObstacle)
		case t.Obstacle.Message != "":
			if t.Obstacle.SQLState == "" {
				t.Obstacle.Verdict = batch.Row // A foreign key forbids the deletion.
			}
			return fault(t.Obstacle)
		default:
			return fault(batch.Fault{
				Table: w.Table.Label(), Verdict: batch.Row,
				Message: "rows remain although no rows refer to them",
			})
		}
	}
	return drain.ErrYield
}

// fault returns a fault as an error.
func fault(f batch.Fault) error { return &batch.FaultError{Fault: f} }

// topError means that a row at the top of a tree has changed since it was read, or that
// another session has locked the row. In both cases no row below it may be deleted.
type topError struct{ batch.Fault }

func (e *topError) Error() string { return e.Message }

func (e *topError) lock() bool { return e != nil && e.Lock() }

// alter runs a transaction that deletes or changes rows of a tree. It first locks the
// user's row of the queue.
//
// If rows are deleted, alter also locks the rows at the top of the tree. It fails if they
// have changed, because the application may have given a row to another user. It locks
// them after the rows below, in the same order as an application or a trigger that
// maintains counters.
func (t *tree) alter(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
	top := -1
	all := slices.Insert(slices.Clone(statements), 0, batch.Statement{SQL: t.r.statement("hold"), Args: []any{t.u.id}})
	if len(t.Stack) > 0 {
		on := t.Stack[0]
		top = max(1, slices.IndexFunc(all, func(s batch.Statement) bool { return s.Scan != nil }))
		all = slices.Insert(all, top, batch.Statement{
			SQL:  dml.HoldStatement(on.Leaf, "FOR NO KEY UPDATE"),
			Args: on.Rows.Args(),
		})
	}
	err := t.Send(ctx, limits, all...)
	f := batch.Judge(err)
	switch failed, ok := errors.AsType[*batch.StatementError](err); {
	case ok && failed.Index == 0 && f.SQLState == batch.Unmet:
		return drain.ErrCancelled
	case ok && failed.Index == top && (f.SQLState == batch.Unmet || f.Lock()):
		f.Table = t.Stack[0].Table.Label()
		return &topError{f}
	}
	return err
}

// tree returns the user's tree, and the table top with the tables below it. The tree
// counts deleted rows of top for the step s. If s is nil, it counts them by table.
func (r *run) tree(ctx context.Context, in *drain.TreeSession, of drain.Tombstone, s *step,
	top Table,
) (*tree, *dml.Table, error) {
	r.mu.Lock()
	u := r.users[of.ID]
	r.mu.Unlock()
	t := u.tree
	if t == nil {
		oids := []uint32{r.Plan.users.OID}
		for _, step := range r.Plan.steps(u.hardDelete) {
			if step.Action == dml.Remove || step.otherwise == dml.Remove {
				oids = append(oids, step.Child.OID)
			}
		}
		below, err := dml.Below(ctx, in.On.Conn, oids)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // It names what it read.
		}
		t = &tree{
			Tree: &drain.Tree{Rows: r.Sizes.Delete, Target: cmp.Or(r.Sizes.Target, treeTarget)}, r: r, u: u,
			below: below,
		}
		t.Alter = t.alter
		u.tree = t
	}
	t.Session, t.Pace, t.Send, t.Paused, t.Progress = in.On, in.Pace, in.Send, in.Yields, r.progress
	root := t.below[top.OID]
	if root == nil {
		return nil, nil, fmt.Errorf("the table %s was dropped after the run began", top.Label())
	}
	t.Owner = t.owner(s, root)
	return t, root, nil
}

// eventStep returns the step that publishes the deleted rows of a table in an event, or
// nil. For the table root it returns own, if that is set. For tables below root it
// returns a step of that table.
func (t *tree) eventStep(own *step, root, of *dml.Table) *step {
	if of == root && own != nil {
		return own
	}
	steps := t.r.Plan.steps(t.u.hardDelete)
	at := slices.IndexFunc(steps, func(s *step) bool { return s.EmitsEvent && s.Child.OID == of.OID })
	if at < 0 {
		return nil
	}
	return steps[at]
}

// owner returns the dml.Owner that counts rows for the user: rows of the step by its
// label, deleted rows below by table, and changed rows by column.
func (t *tree) owner(s *step, root *dml.Table) dml.Owner {
	names := t.Session.Names
	label := func(of *dml.Table) string {
		if s != nil && of == root {
			return s.label
		}
		return t.r.Plan.label(of)
	}
	return dml.Owner{
		ID: t.u.id, Deleted: t.r.statement("deleted_below"), Changed: t.r.statement("changed_below"),
		Extra: func(of *dml.Table) dml.Extra {
			s := t.eventStep(s, root, of)
			if s == nil || !s.EmitsEvent {
				return dml.Extra{}
			}
			user := "(SELECT queued.user_id FROM " + queueTable(names) +
				" AS queued WHERE queued.id OPERATOR(pg_catalog.=) $3)"
			return dml.Extra{
				Returning: []string{batch.RowKey("target", s.PrimaryKey, s.EventColumns) + " AS key"},
				CTE: "published AS (" + batch.DeletedRows(names, s.tableLabel, "'user_id', "+user+", ", "deleted",
					s.EventColumns) + ")",
			}
		},
		OnDeleted: func(of *dml.Table, rows, _ int64) {
			t.count(dml.Remove, label(of), rows, s != nil && of == root && s.Action != dml.Remove)
		},
		OnChanged: func(f *dml.Ref, rows int64) { t.count(dml.Nullify, f.Label(), rows, false) },
		// Faults are not counted here, because the fault that ends the tree is recorded
		// for the user.
		Failed: func(batch.Fault) {},
	}
}

// count adds deleted or changed rows to the statistics.
func (t *tree) count(do dml.Action, label string, rows int64, duplicates bool) {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.r.stats.count(t.u, do, label, rows, duplicates)
}
