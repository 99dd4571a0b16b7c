package loosefk

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

const (
	// pageSize limits the tombstones that one statement of a retry reads. changeSize
	// limits the tombstones that one transaction changes.
	pageSize   = 10_000
	changeSize = 1_000
)

// Tombstones lists the failed tombstones of one database and retries them. It may be used
// while workers run.
type Tombstones struct {
	DB     pgcatalog.Beginner
	Names  pgcatalog.Names
	Bounds Bounds
	// Wake is called in each transaction that made tombstones due.
	Wake Waker
}

// queryResult calls query in a transaction with the timeouts of Bounds, and returns its
// result. what describes the query in errors.
func queryResult[T any](ctx context.Context, t Tombstones, what string,
	query func(q *dbsqlc.Queries) (T, error),
) (result T, err error) {
	err = t.Bounds.Read(ctx, t.DB, "", func(tx pgx.Tx) (err error) {
		result, err = query(t.Names.Queries(tx))
		return err
	})
	return result, problem.Doing(err, "%s", what)
}

// FailedTombstone is a tombstone with attempts, or a deferred one.
type FailedTombstone struct {
	ID int64
	// Table is the parent as the tombstone names it, schema-qualified and quoted if
	// necessary.
	Table string
	// Key is the deleted row's key in text form.
	Key string
	// Attempts counts the runs that could not finish the tombstone since its last retry.
	Attempts int64
	// LastError has the table, SQLSTATE and message of the last attempt. It is nil before
	// the first one.
	LastError *string
	// ConsumeAfter is the time from which the tombstone is due. It may be infinite,
	// because an operator can set it to reorder the queue.
	ConsumeAfter pgtype.Timestamptz
	// Deferred reports that ConsumeAfter is in the future.
	Deferred   bool
	AgeSeconds float64
	Total      int64
}

// FailedTombstones are the first failed tombstones of a database.
type FailedTombstones struct {
	First []FailedTombstone
	// More counts the failed tombstones that are not in First. If Capped is true, there
	// may be more than More.
	More   int64
	Capped bool
}

// Failed returns at most limit failed tombstones, ordered by parent and then as they are
// processed. It reads at most window tombstones from the head of each parent's queue, and
// at most window deferred tombstones. All failed tombstones are in these two parts: a run
// begins with the oldest tombstones, and a failure defers a tombstone to a time in the
// future.
func (t Tombstones) Failed(ctx context.Context, limit, window int) (list FailedTombstones, err error) {
	var total int64
	rows, err := queryResult(ctx, t, "list tombstones", func(q *dbsqlc.Queries) ([]dbsqlc.TombstonesFailedRow, error) {
		parents, err := q.TombstoneParents(ctx)
		if err != nil {
			return nil, err
		}
		return q.TombstonesFailed(ctx, parents, int64(window)+1, int64(limit))
	})
	for _, row := range rows {
		list.First, total = append(list.First, FailedTombstone(row)), row.Total
	}
	list.Capped = total > int64(window)
	list.More = max(0, min(total, int64(window))-int64(len(list.First)))
	return list, err
}

// Retried is the result of a retry.
type Retried struct {
	// Retried counts tombstones that were made due. Due is 1 if Retry was called with the
	// id of a tombstone that was already due and had not failed.
	Retried, Due int64
	// Busy counts tombstones that a worker was processing. They were not changed.
	Busy int64
}

// Retry makes the failed tombstone id due now and resets its attempts. If id is 0, Retry
// does so for all failed tombstones. It is idempotent. It reads the queue in pages and
// skips rows that another session has locked. The counts are also valid with an error.
func (t Tombstones) Retry(ctx context.Context, id int64) (result Retried, err error) {
	parents, err := queryResult(ctx, t, "list parents of tombstones",
		func(q *dbsqlc.Queries) ([]string, error) { return q.TombstoneParents(ctx) })
	if err != nil {
		return result, err
	}
	for _, parent := range parents {
		if err := t.retryParent(ctx, parent, id, &result); err != nil {
			return result, err
		}
		if id != 0 && result != (Retried{}) {
			break
		}
	}
	return result, nil
}

func (t Tombstones) retryParent(ctx context.Context, parent string, id int64, result *Retried) error {
	what := "retry tombstones of " + parent
	next := dbsqlc.TombstonesPageParams{Wanted: id, Size: pageSize, Parent: parent, After: "-infinity"}
	for more := true; more; {
		more = false
		page, err := queryResult(ctx, t, what, func(q *dbsqlc.Queries) ([]dbsqlc.TombstonesPageRow,
			error,
		) {
			return q.TombstonesPage(ctx, next)
		})
		if err != nil {
			return err
		}
		var ids []int64
		var times []string
		for _, one := range page {
			if one.Last {
				next.After, next.ID, more = one.At, one.ID, true
			}
			switch {
			case one.Wanted && one.Failed:
				ids, times = append(ids, one.ID), append(times, one.At)
			case one.Wanted && id != 0:
				result.Due++
			}
		}
		for begin := 0; begin < len(ids); begin += changeSize {
			end := min(begin+changeSize, len(ids))
			var found int64
			retried, err := t.change(ctx, what, func(q *dbsqlc.Queries) (int64, error) {
				row, err := q.TombstonesRetry(ctx, ids[begin:end], times[begin:end], parent)
				found = row.Found
				return row.Retried, err
			})
			if err != nil {
				return err
			}
			result.Retried += retried
			result.Busy += found - retried
		}
		if id != 0 && *result != (Retried{}) {
			break // A later page could return the tombstone again at its new position.
		}
	}
	return nil
}

// change calls do in a transaction of its own. If do has changed tombstones, change wakes
// workers in the same transaction.
func (t Tombstones) change(ctx context.Context, what string,
	do func(q *dbsqlc.Queries) (int64, error),
) (changed int64, err error) {
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

// Count counts the pending tombstones of a parent, up to most.
func (t Tombstones) Count(ctx context.Context, parent string, most int64) (int64, error) {
	return queryResult(ctx, t, "count tombstones of "+parent,
		func(q *dbsqlc.Queries) (int64, error) { return q.TombstonesCount(ctx, parent, most) })
}

// Bounds are the timeouts of the short transactions of operator commands. They keep a
// command from blocking workers and the application, which use the same tables.
type Bounds struct {
	StatementTimeout time.Duration
	LockTimeout      time.Duration
}

// Waker wakes the workers that process tombstones when tx commits, as the trigger on
// inserted tombstones does.
type Waker func(ctx context.Context, tx pgx.Tx) error

// boundedSettings is the SQL that sets the timeouts and other settings of one
// transaction. With READ COMMITTED each statement sees all rows that were committed
// before it, whatever the default of role and database is. Without row_security = off,
// rows hidden by policies would count as deleted. With it, Postgres raises an error. run
// appends SetTexts, so that keys have the same text form as in the tracking triggers.
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

// Write runs do in a bounded transaction. The application's triggers run in this
// transaction, so Write changes no setting that affects their plans.
func (b Bounds) Write(ctx context.Context, db pgcatalog.Beginner, do func(tx pgx.Tx) error) error {
	return b.run(ctx, db, "", do)
}

func (b Bounds) run(ctx context.Context, db pgcatalog.Beginner, settings string, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		script := fmt.Sprintf(boundedSettings, b.StatementTimeout.Milliseconds(), b.LockTimeout.Milliseconds()) +
			pgcatalog.SetTexts() + settings
		if _, err := tx.Exec(ctx, script); err != nil {
			return fmt.Errorf("set transaction settings: %w", err)
		}
		return do(tx)
	})
}
