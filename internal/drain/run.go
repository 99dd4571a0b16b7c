package drain

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/pace"
)

// Tuple is where a version of a row is in its leaf.
type Tuple = pgtype.TID

const (
	defaultRows = 1000
	// LargestBatch bounds the rows of one statement, however short a time they take.
	LargestBatch = 50_000
)

// Owner is the thing on whose behalf rows go, such as a group: it counts them, and may do more in the transactions that delete them. Its
// texts are names of CTEs and what stands between them, each with a comma in front.
type Owner struct {
	// ID is $3 in all texts.
	ID int64
	// Deleted counts the rows in the CTE total (rows), Changed those in the CTE changed, whose rows are not deleted.
	Deleted, Changed string
	// Beside is the effect of the end of a table's rows.
	Beside func(t *Table) Beside
	// Figures are the fields of the statistics that deleted rows of a table belong to, the one with the table's label first.
	// Field is the one of changed rows, whose label is the key's.
	Figures func(t *Table) []batch.Figure
	Field   string
	// Gone and Altered learn of committed rows; aside is the number that Beside selected.
	Gone    func(t *Table, rows, aside int64)
	Altered func(f *Ref, rows int64)
	// Failed learns of errors that rows are to blame for.
	Failed func(f batch.Fault)
}

// label is the one under which deleted rows of a table are counted.
func (o *Owner) label(t *Table) string { return o.Figures(t)[0].Label }

// Beside is the further work of a statement that deletes rows of a table. CTEs may read the CTE gone, which has the columns that Returning adds
// with the alias target. Selected is an expression of type bigint, or "".
type Beside struct{ CTEs, Returning, Selected string }

// ErrCancelled says that the owner is not to lose its rows any more. An Alter returns it.
var ErrCancelled = errors.New("the deletion was cancelled")

// Run takes down trees. All that it knows about rows it has read from the database; the fields that say what was met are for the caller.
type Run struct {
	Session *batch.Session
	Owner   Owner
	// Rows is the number that statements begin with; 0 stands for 1000.
	Rows  int
	Steer pace.Steer
	Pace  *pace.Run
	// Send runs a transaction, Alter one that deletes or changes rows.
	Send, Alter func(ctx context.Context, limits batch.Limits, statements ...batch.Statement) error
	// Paused reports that what is in hand is to be left.
	Paused func(ctx context.Context) bool
	// Progress is called after every batch.
	Progress func(ctx context.Context)

	// Waits reports that batches wait for rows that others have locked, and that rows which refer to each other in a ring go
	// together: nothing else is left to do.
	Waits bool
	// Stack are the windows whose trees are being taken down, Deepest is the most that they were, down to the table Lowest.
	Stack   []*Window
	Deepest int
	Lowest  *Table
	// Changes counts rows that have gone or changed.
	Changes int64
	// Failed are rows that cannot be deleted or changed, by leaf, Failures how many they are.
	Failed   map[uint32][]Tuple
	Failures int
	// Waiting are rows of chains, by leaf, that did not move since the caller looked from the top.
	Waiting map[uint32][]Tuple
	// Fault is the first error that rows are to blame for, Obstacle something weaker that stood in the way.
	Fault    *batch.Fault
	Obstacle batch.Fault
}

// MostFailures is how many single rows may fail in one run: one by one they cost more than they are worth.
const MostFailures = 100

// Result is how a part of the work ended.
type Result int

const (
	// Finished says that nothing is left of it.
	Finished Result = iota
	// Yielded says that the run's time is over, or that it was asked to stop.
	Yielded
	// Blocked says that what is left cannot go for now.
	Blocked
)

// Query runs a statement that changes nothing and collects its rows.
func Query[T any](ctx context.Context, r *Run, to func(pgx.CollectableRow) (T, error), sql string, args ...any) (found []T, err error) {
	err = r.Send(ctx, r.ShortWaits(), batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(&found, to)})
	return found, err
}

// Versions runs a statement that selects tuples and versions (ctid and xmin) of rows in one leaf.
func (r *Run) Versions(ctx context.Context, sql string, args ...any) (Rows, error) {
	return Query(ctx, r, ScanRow, sql, args...)
}

// ShortWaits are the session's limits with short waits for locks, as long as there is something else to do.
func (r *Run) ShortWaits() batch.Limits {
	if r.Waits {
		return r.Session.Limits
	}
	return r.Session.Limits.ShortWaits()
}

// Watch finds out whom a batch with such limits waits for, if that may last, until the function that it returns is called with the batch's error:
// that judges it, and names the session that held the lock.
func (r *Run) Watch(ctx context.Context, limits batch.Limits) func(error) batch.Fault {
	end := func() string { return "" }
	if limits.LockTimeout > pace.WorthAWord {
		end = r.Pace.Watch(ctx, "")
	}
	return func(err error) batch.Fault {
		blocker, f := end(), batch.Judge(err)
		if f.Lock() {
			r.Pace.Locked()
		}
		return f.By(blocker)
	}
}

// Handle decides about an error that no row is to blame for: the run ends, or what it was about is left for later.
func (r *Run) Handle(err error, label string) (Result, error) {
	return r.HandleFault(batch.Judge(err), err, label)
}

// HandleFault is Handle for an error that was judged.
func (r *Run) HandleFault(f batch.Fault, err error, label string) (Result, error) {
	if errors.Is(err, ErrCancelled) {
		return Blocked, err
	}
	f.Table = label
	if !f.Lock() {
		r.Owner.Failed(f)
	}
	switch {
	case f.Verdict == batch.Fatal:
		return Blocked, err
	case r.Pace.Ended():
		return Yielded, nil
	case f.Lock() || f.Verdict == batch.Timeout:
		r.Obstacle = f
	case r.Fault == nil:
		r.Fault = &f
	}
	return Blocked, nil
}
