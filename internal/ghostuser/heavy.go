package ghostuser

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
)

// A row may have more below it, by foreign keys of the database, than one statement can delete in its time. Such rows are found when the
// deletion of a single one times out. From then on the user's rows of that table go children first; the queue remembers it.

const (
	// heavyRows are the rows of a step whose trees are taken down together.
	heavyRows = 50
	// heavyTarget is the time of a statement where the sizes have no target.
	heavyTarget = 20 * time.Millisecond
)

// makeHeavy notes that a user's rows of a table go children first from now on. The user yields: its next turn does so.
func (r *run) makeHeavy(ctx context.Context, j *job, table string) (result, error) {
	_, err := r.Session.Run(ctx, batch.Statement{SQL: r.statement("heavy"), Args: []any{j.id, table}})
	if err != nil {
		return r.beaten(j, batch.Judge(err), fmt.Errorf("note that rows of %s go children first: %w", table, err))
	}
	j.heavy = append(j.heavy, table)
	return yielded, nil
}

// isHeavy reports whether the user's rows of the step's table go children first.
func (j *job) isHeavy(s *step) bool { return slices.Contains(j.heavy, s.tableLabel) }

// fell deletes the step's rows in one leaf, each after everything that hangs below it; with only no others than the rows that these pointers
// lead to.
func (r *run) fell(ctx context.Context, j *job, s *step, leaf Table, only []pointer) (result, error) {
	root, err := r.root(ctx, j, s, s.Child)
	if err != nil {
		return r.beaten(j, batch.Judge(err), err)
	}
	read := func() (*drain.Window, error) {
		sql, args := s.versionsStatement(leaf, j, only)
		return j.window(ctx, root, leaf, sql, args)
	}
	before := j.tree.Changes
	result, err := r.take(ctx, j, s.tableLabel, read, j.tree.Take)
	if result == finished && err == nil && only != nil && j.tree.Changes > before {
		return yielded, nil // A trigger may have moved the row away from its pointer: the next turn looks for it.
	}
	return result, err
}

// window reads which rows of a leaf a statement selects, with their versions; nil where there are none.
func (j *job) window(ctx context.Context, root *drain.Table, leaf Table, sql string, args []any) (*drain.Window, error) {
	rows, err := j.tree.Versions(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	w, known := root.Window(leaf.OID, rows)
	if len(rows) == 0 || !known {
		return nil, nil //nolint:nilnil // There is nothing to do.
	}
	return w, nil
}

// clearUser takes down what refers to the user by keys that no step is about: those of more or other columns than its id.
func (r *run) clearUser(ctx context.Context, j *job) (result, error) {
	users := r.engine.Plan.users
	root, err := r.root(ctx, j, nil, users)
	if err != nil {
		return r.beaten(j, batch.Judge(err), err)
	}
	for _, leaf := range root.Leaves {
		read := func() (*drain.Window, error) {
			return j.window(ctx, root, leaf, fmt.Sprintf(
				"SELECT picked.ctid, picked.xmin FROM ONLY %s AS picked WHERE picked.id OPERATOR(pg_catalog.=) $1", leaf.SQL()), []any{j.userID})
		}
		refs := slices.DeleteFunc(root.RefsOf(leaf), func(f *drain.Ref) bool {
			return slices.Equal(f.Targets, []string{"id"}) || slices.ContainsFunc(r.engine.Plan.steps(j.hardDelete), func(s *step) bool {
				return s.Child.OID == f.Table.OID && slices.Contains(f.Columns, s.column())
			})
		})
		result, err := r.take(ctx, j, "", read, func(ctx context.Context, w *drain.Window) (drain.Rows, drain.Result, error) {
			ended, err := j.tree.Clear(ctx, w, refs)
			if ended == drain.Finished {
				return nil, ended, err
			}
			return w.Rows, ended, err
		})
		if result != finished || err != nil {
			return result, err
		}
	}
	return finished, nil
}

// take works off the windows of a table that read returns until there is none, or once finds nothing to do. An application, or a trigger on rows below,
// may change the rows of a window at any time, so each attempt reads them anew: a row is to blame only if it has not changed since. Rings of rows, for
// which no row is to blame, go once nothing else moves.
func (r *run) take(
	ctx context.Context, j *job, of string, read func() (*drain.Window, error),
	once func(context.Context, *drain.Window) (drain.Rows, drain.Result, error),
) (result, error) {
	tree, changed, all := j.tree, 0, false
	tree.Waits = j.waits
	for !r.paused(ctx) {
		w, err := read()
		switch {
		case err != nil:
			return r.beaten(j, batch.FaultIn(err, of), err)
		case w == nil:
			return finished, nil
		}
		if all {
			j.rounds++
		}
		if j.rounds > drain.MostRounds {
			return j.fails(comesBack(w.Table.Label()))
		}
		tree.Fault, tree.Obstacle, tree.Waiting = nil, batch.Fault{}, map[uint32][]drain.Tuple{}
		before := tree.Changes
		left, ended, err := once(ctx, w)
		top, held := errors.AsType[*topError](err)
		switch {
		case errors.Is(err, drain.ErrCancelled):
			return yielded, nil // The next turn finds no row in the queue.
		case held && top.Lock():
			return r.beaten(j, top.Fault, err)
		case err != nil && !held:
			return r.beaten(j, batch.Judge(err), err)
		case ended == drain.Yielded:
			return yielded, nil
		case tree.Fault != nil:
			return j.fails(tooSlow(*tree.Fault))
		case tree.Changes > before:
			// All rows of the step have gone with these. With of empty the window is the user, who stays.
			changed, all = 0, of != "" && len(left) == 0 && len(w.Rows) < heavyRows
			continue
		case !held && len(left) == 0:
			return finished, nil
		}
		if !held {
			same, err := drain.Query(ctx, tree, pgx.RowTo[bool], drain.UnchangedStatement(w.Leaf), w.Rows.Args()...)
			if err != nil {
				return r.beaten(j, batch.Judge(err), err)
			}
			held = !same[0]
		}
		switch changed++; {
		case held && changed > drain.MostRounds:
			return r.beaten(j, batch.Fault{Table: w.Table.Label(), Message: "another session changes the rows all the time", Verdict: batch.Conflict}, nil)
		case held:
		case tree.Obstacle.Lock():
			return r.beaten(j, tree.Obstacle, nil)
		case !tree.Waits:
			tree.Waits = true
		case tree.Obstacle.Message != "":
			return j.fails(tree.Obstacle)
		default:
			return j.fails(batch.Fault{Table: w.Table.Label(), Message: fmt.Sprintf(
				"rows that refer to each other in a ring of more than %d cannot go one after the other", drain.MostInRing)})
		}
	}
	return yielded, nil
}

// topError says that a row at the top of a tree has changed since it was read, or that another session keeps it locked. No row below may go then.
type topError struct{ batch.Fault }

func (e *topError) Error() string { return e.Message }

// alter runs a transaction that deletes or changes rows of a tree. It locks the user's row of the queue and, before anything below them goes, the rows
// at the top, if they are as they were read: the application may have given one to another user. That lock comes behind those of rows
// below, as it does where an application or a trigger counts them.
func (r *run) alter(ctx context.Context, j *job, limits batch.Limits, statements []batch.Statement) error {
	top := -1
	all := slices.Insert(slices.Clone(statements), 0, batch.Statement{SQL: r.statement("hold"), Args: []any{j.id}})
	if len(j.tree.Stack) > 0 {
		on := j.tree.Stack[0]
		top = max(1, slices.IndexFunc(all, func(s batch.Statement) bool { return s.Scan != nil }))
		all = slices.Insert(all, top, batch.Statement{SQL: drain.HoldStatement(on.Leaf), Args: on.Rows.Args()})
	}
	err := r.Send(ctx, limits, all...)
	f := batch.Judge(err)
	switch failed, ok := errors.AsType[*batch.StatementError](err); {
	case ok && failed.Index == 0 && f.SQLState == "22012":
		return drain.ErrCancelled
	case ok && failed.Index == top && (f.SQLState == "22012" || f.Lock()):
		f.Table = j.tree.Stack[0].Table.Label()
		return &topError{f}
	}
	return err
}

// root returns a table with what hangs below it, and has the user's tree count the step's rows; without a step there are none.
func (r *run) root(ctx context.Context, j *job, s *step, of Table) (*drain.Table, error) {
	if r.below == nil {
		oids := []uint32{r.engine.Plan.users.OID}
		for _, step := range slices.Concat(r.engine.Plan.soft, r.engine.Plan.hard) {
			if step.Action == drain.Remove || step.otherwise == drain.Remove {
				oids = append(oids, step.Child.OID)
			}
		}
		below, err := drain.Below(ctx, r.Session.Conn, oids)
		if err != nil {
			return nil, err
		}
		r.below = below
	}
	root := r.below[of.OID]
	if root == nil {
		return nil, fmt.Errorf("the table %s has gone since the run began", of.Label())
	}
	if j.tree == nil {
		j.tree = r.newTree(j)
	}
	for _, t := range r.below {
		of := r.teller(j, s, root, t)
		t.Told = of != nil && of.Tells
	}
	j.tree.Owner = r.owner(j, s, root)
	return root, nil
}

// newTree makes the run that takes down the trees of a user's rows, as part of the user's turns.
func (r *run) newTree(j *job) *drain.Run {
	tree := *r.Run
	tree.Failed = map[uint32][]drain.Tuple{}
	tree.Alter = func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error {
		return r.alter(ctx, j, limits, statements)
	}
	return &tree
}

// teller returns the step that tells of deleted rows of a table: the one in hand of its own rows, of rows below any that tells; nil where there is
// none.
func (r *run) teller(j *job, inHand *step, root, t *drain.Table) *step {
	if t == root && inHand != nil {
		return inHand
	}
	steps := r.engine.Plan.steps(j.hardDelete)
	at := slices.IndexFunc(steps, func(s *step) bool { return s.Tells && s.Child.OID == t.OID })
	if at < 0 {
		return nil
	}
	return steps[at]
}

// owner has rows counted for the user: the step's as any others of the step, what hangs below them by table, or by column where it is
// changed.
func (r *run) owner(j *job, s *step, root *drain.Table) drain.Owner {
	names := r.Session.Names
	label := func(t *drain.Table) string {
		if s != nil && t == root {
			return s.label
		}
		return r.engine.Plan.label(t)
	}
	return drain.Owner{
		ID: j.id, Deleted: r.statement("deleted_below"), Changed: r.statement("changed_below"), Field: field(drain.Nullify),
		Beside: func(t *drain.Table) drain.Beside {
			s := r.teller(j, s, root, t)
			if s == nil {
				return drain.Beside{}
			}
			user := "(SELECT queued.user_id FROM " + names.Render(`"public".`) + QueueTable + " AS queued WHERE queued.id OPERATOR(pg_catalog.=) $3)"
			const someRows = "HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0"
			return drain.Beside{Returning: s.keys(drain.Remove, "target"), CTEs: s.event(names, drain.Remove, user, "gone", someRows)}
		},
		Figures: func(t *drain.Table) []batch.Figure {
			return []batch.Figure{{Field: field(drain.Remove), Label: label(t)}}
		},
		Gone: func(t *drain.Table, rows, _ int64) {
			if s != nil && t == root {
				r.stats.count(j, s, drain.Remove, rows)
				j.tide(s).Gone += rows
			} else if rows > 0 {
				r.stats.Deleted[label(t)] += rows
				j.done.Deleted += rows
			}
		},
		Altered: func(f *drain.Ref, rows int64) {
			r.stats.Nullified[f.Label()] += rows
			j.done.Nullified += rows
		},
		Failed: func(batch.Fault) {}, // The user fails with it.
	}
}
