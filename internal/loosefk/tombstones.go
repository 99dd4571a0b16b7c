package loosefk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

const (
	// listWindow is how many tombstones List reads of each parent: that number from the
	// head of its queue, and that number of deferred ones. Failed tombstones are in one
	// of these two parts. A run begins with the oldest tombstones, and a failure moves a
	// tombstone past the current time only.
	listWindow = 10_000
	// pageSize is how many tombstones one statement of a retry reads. changeSize is how
	// many one transaction changes.
	pageSize   = 10_000
	changeSize = 1_000
)

// Tombstones lists the pending tombstones of one database and retries failed ones. It may
// be used while workers run.
type Tombstones struct {
	DB     pgcatalog.Beginner
	Names  pgcatalog.Names
	Bounds Bounds
	// Wake is called in each transaction that made tombstones due.
	Wake Waker
}

// queryResult returns the result of one query in a bounded transaction. what describes it
// in errors.
func queryResult[T any](ctx context.Context, t Tombstones, what string, query func(q *dbsqlc.Queries) (T, error)) (result T, err error) {
	err = t.Bounds.Read(ctx, t.DB, "", func(tx pgx.Tx) (err error) {
		result, err = query(t.Names.Queries(tx))
		return err
	})
	return result, problem.Doing(err, "%s", what)
}

// PendingTombstone is one deleted parent whose children have not been cleaned up yet.
type PendingTombstone struct {
	ID int64 `json:"id"`
	// Table is the parent as the tombstone names it, schema-qualified and quoted if
	// necessary.
	Table string `json:"table"`
	// Key is the deleted row's key in text form.
	Key string `json:"key"`
	// Attempts counts the runs that could not finish it since it was last retried.
	Attempts int64 `json:"attempts"`
	// Failed is true for tombstones with attempts and for deferred tombstones.
	Failed bool `json:"failed"`
	// LastError is table, SQLSTATE and message of the last attempt. It is nil before the
	// first one.
	LastError *string `json:"last_error"`
	// ConsumeAfter is when it is or was due. It may be infinite: an operator can use it
	// to reorder the queue.
	ConsumeAfter pgtype.Timestamptz `json:"consume_after"`
	// Deferred reports that ConsumeAfter is in the future.
	Deferred   bool    `json:"deferred"`
	AgeSeconds float64 `json:"age_seconds"`
	Total      int64   `json:"-"`
}

// ListOptions selects tombstones. Limit must be positive.
type ListOptions struct {
	// Parent is the recorded name of one parent. "" selects all parents.
	Parent string
	// FailedOnly leaves out tombstones that have not failed.
	FailedOnly bool
	Limit      int
	// Window is how many tombstones of a parent are read in each part of the queue that
	// has failed ones. 0 stands for listWindow.
	Window int
}

// TombstoneList is the beginning of a queue.
type TombstoneList struct {
	Tombstones []PendingTombstone
	// More counts tombstones that Limit left out. Capped reports that there may be more
	// than that.
	More   int64
	Capped bool
}

// List returns the first tombstones: failed ones first, then by parent and in the order
// in which they are processed. It reads a limited part of the queue, however long that
// is.
func (t Tombstones) List(ctx context.Context, options ListOptions) (TombstoneList, error) {
	var list TombstoneList
	parents, err := t.parents(ctx, options.Parent)
	if err != nil {
		return list, err
	}
	window := int64(cmp.Or(options.Window, listWindow))
	var total int64
	list.Tombstones, total, err = t.read(ctx, dbsqlc.TombstonesListParams{
		Parents: parents, Span: window + 1, FailedOnly: options.FailedOnly, Most: int64(options.Limit),
	})
	list.Capped = total > window
	list.More = max(0, min(total, window)-int64(len(list.Tombstones)))
	return list, err
}

func (t Tombstones) read(ctx context.Context, params dbsqlc.TombstonesListParams) (found []PendingTombstone, total int64, err error) {
	rows, err := queryResult(ctx, t, "list tombstones", func(q *dbsqlc.Queries) ([]dbsqlc.TombstonesListRow, error) { return q.TombstonesList(ctx, params) })
	found = []PendingTombstone{}
	for _, row := range rows {
		found, total = append(found, PendingTombstone(row)), row.Total
	}
	return found, total, err
}

// RetryOptions selects the tombstones to retry: by ID, of one parent, or all.
type RetryOptions struct {
	Parent string
	// IDs selects these tombstones. If it is empty, all are selected.
	IDs []int64
}

// Retried is the result of a retry.
type Retried struct {
	// Retried counts tombstones that were made due. Due counts those that already were
	// due and had not failed. It only counts tombstones that were selected by ID.
	Retried int64 `json:"retried"`
	Due     int64 `json:"due"`
	// Busy counts tombstones that a worker was processing. They were not changed.
	Busy int64 `json:"busy"`
	// Unknown has the IDs for which there is no pending tombstone.
	Unknown []int64 `json:"unknown"`
}

// Retry makes failed tombstones due now and resets their attempts. A second call changes
// nothing more. It reads the queue in pages and skips rows that another session has
// locked. The counts are also valid with an error.
func (t Tombstones) Retry(ctx context.Context, options RetryOptions) (Retried, error) {
	result := Retried{Unknown: slices.Compact(slices.Sorted(slices.Values(options.IDs)))}
	parents, err := t.parents(ctx, options.Parent)
	if err != nil {
		return result, err
	}
	if result.Unknown == nil {
		result.Unknown = []int64{}
	}
	for _, parent := range parents {
		if err := t.retryParent(ctx, parent, options.IDs, &result); err != nil {
			return result, err
		}
		if len(options.IDs) > 0 && len(result.Unknown) == 0 {
			break
		}
	}
	return result, nil
}

func (t Tombstones) retryParent(ctx context.Context, parent string, ids []int64, result *Retried) error {
	what := "retry tombstones of " + parent
	if len(ids) == 0 {
		ids = nil
	}
	next := dbsqlc.TombstonesPageParams{Ids: ids, Size: pageSize, Parent: parent, After: "-infinity"}
	for more := true; more; {
		more = false
		page, err := queryResult(ctx, t, what, func(q *dbsqlc.Queries) ([]dbsqlc.TombstonesPageRow, error) { return q.TombstonesPage(ctx, next) })
		if err != nil {
			return err
		}
		failed := page[:0]
		for _, one := range page {
			if one.Last {
				next.After, next.ID, more = one.At, one.ID, true
			}
			if !one.Wanted {
				continue
			}
			at, unmet := slices.BinarySearch(result.Unknown, one.ID)
			switch {
			case one.Failed:
				failed = append(failed, one)
			case unmet: // It may also be due because this retry made it due at a later position.
				result.Due++
			}
			if unmet {
				result.Unknown = slices.Delete(result.Unknown, at, at+1)
			}
		}
		for part := range slices.Chunk(failed, changeSize) {
			var ids []int64
			var times []string
			for _, one := range part {
				ids, times = append(ids, one.ID), append(times, one.At)
			}
			var found int64
			retried, err := t.change(ctx, what, func(q *dbsqlc.Queries) (int64, error) {
				row, err := q.TombstonesRetry(ctx, ids, times, parent)
				found = row.Found
				return row.Retried, err
			})
			if err != nil {
				return err
			}
			result.Retried += retried
			result.Busy += found - retried
		}
		if ids != nil && len(result.Unknown) == 0 {
			return nil
		}
	}
	return nil
}

// change runs do in a transaction of its own, and wakes workers if it has changed
// tombstones.
func (t Tombstones) change(ctx context.Context, what string, do func(q *dbsqlc.Queries) (int64, error)) (changed int64, err error) {
	err = t.Bounds.Write(ctx, t.DB, func(tx pgx.Tx) error {
		if changed, err = do(t.Names.Queries(tx)); err != nil || changed == 0 {
			return err
		}
		return t.Wake(ctx, tx)
	})
	if err != nil {
		return 0, problem.Doing(err, "%s", what)
	}
	return changed, nil
}

// parents returns the recorded name of one parent or of all that have tombstones.
func (t Tombstones) parents(ctx context.Context, one string) ([]string, error) {
	if one != "" {
		return []string{one}, nil
	}
	return queryResult(ctx, t, "look for tombstones", func(q *dbsqlc.Queries) ([]string, error) { return q.TombstoneParents(ctx) })
}

// Count counts the pending tombstones of a parent, up to most.
func (t Tombstones) Count(ctx context.Context, parent string, most int64) (int64, error) {
	return queryResult(ctx, t, "count tombstones of "+parent, func(q *dbsqlc.Queries) (int64, error) { return q.TombstonesCount(ctx, parent, most) })
}

// Bounds are the timeouts of the short transactions of operator commands. These run while
// workers and the application use the same tables.
type Bounds struct {
	StatementTimeout time.Duration
	LockTimeout      time.Duration
}

// Waker wakes the workers that process tombstones when tx commits, as the trigger on
// inserted tombstones does.
type Waker func(ctx context.Context, tx pgx.Tx) error

// boundedSettings are the settings of one transaction. With READ COMMITTED each statement
// sees all rows committed before it, whatever the default of role and database is.
// Policies could hide rows, which would then count as deleted. row_security = off makes
// that an error. The text forms of keys are the ones that the tracking triggers write.
const boundedSettings = `
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL statement_timeout = %d;
SET LOCAL lock_timeout = %d;
SET LOCAL idle_in_transaction_session_timeout = '10s';
SET LOCAL row_security = off;
`

// Read runs do in a bounded transaction that only reads. settings are complete SET LOCAL
// commands, for example for the planner.
func (b Bounds) Read(ctx context.Context, db pgcatalog.Beginner, settings string, do func(tx pgx.Tx) error) error {
	return b.run(ctx, db, "SET TRANSACTION READ ONLY;\nSET LOCAL jit = off;\n"+settings, do)
}

// Write runs do in a bounded transaction. The application's triggers run in it, so it sets
// nothing that would change their plans.
func (b Bounds) Write(ctx context.Context, db pgcatalog.Beginner, do func(tx pgx.Tx) error) error {
	return b.run(ctx, db, "", do)
}

func (b Bounds) run(ctx context.Context, db pgcatalog.Beginner, settings string, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		script := fmt.Sprintf(boundedSettings, b.StatementTimeout.Milliseconds(), b.LockTimeout.Milliseconds()) + pgcatalog.SetTexts() + settings
		if _, err := tx.Exec(ctx, script); err != nil {
			return fmt.Errorf("settle session: %w", err)
		}
		return do(tx)
	})
}
