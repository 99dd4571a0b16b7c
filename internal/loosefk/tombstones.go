package loosefk

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

const (
	// listWindow is how many tombstones of a parent are looked at from the head of its queue, and as many of those
	// that are put off. What has failed stands in one of the two: a run begins with the oldest, and failing
	// moves a tombstone behind the present moment only.
	listWindow = 10_000
	// pageSize is how many tombstones one statement of a retry reads, changeSize how many one transaction changes.
	pageSize   = 10_000
	changeSize = 1_000
)

// Tombstones shows the waiting tombstones of one database and has failed ones tried again, beside workers.
type Tombstones struct {
	DB     pgcatalog.Beginner
	Names  pgcatalog.Names
	Bounds Bounds
	// Wake is called in each transaction that made tombstones due.
	Wake Waker
}

// in runs do in one bounded transaction; an error names what was done.
func (t Tombstones) in(ctx context.Context, what string, do func(q *dbsqlc.Queries, tx pgx.Tx) error) error {
	return problem.Doing(t.Bounds.Run(ctx, t.DB, "", func(tx pgx.Tx) error { return do(t.Names.Queries(tx), tx) }), "%s", what)
}

// asked is the answer to one question, in a bounded transaction.
func asked[T any](ctx context.Context, t Tombstones, what string, question func(q *dbsqlc.Queries) (T, error)) (answer T, err error) {
	err = t.in(ctx, what, func(q *dbsqlc.Queries, _ pgx.Tx) (err error) {
		answer, err = question(q)
		return err
	})
	return answer, err
}

// PendingTombstone is one deleted parent whose children have not been cleaned up yet.
type PendingTombstone struct {
	ID int64 `json:"id"`
	// Table is the parent as the tombstone names it, schema-qualified and quoted where needed.
	Table string `json:"table"`
	// Key is the deleted row's key in text form.
	Key string `json:"key"`
	// Attempts counts the runs that could not finish it since it was last put back.
	Attempts int64 `json:"attempts"`
	// Failed is true for tombstones with attempts and for tombstones that are put off.
	Failed bool `json:"failed"`
	// LastError is table, SQLSTATE and message of the last attempt; nil before the first one.
	LastError *string `json:"last_error"`
	// ConsumeAfter is when it falls, or fell, due. It may be infinite, which is how an operator reorders the queue.
	ConsumeAfter pgtype.Timestamptz `json:"consume_after"`
	// Deferred reports that ConsumeAfter lies ahead.
	Deferred   bool    `json:"deferred"`
	AgeSeconds float64 `json:"age_seconds"`
	Total      int64   `json:"-"`
}

// ListOptions choose tombstones. The zero value is not useful: Limit has to be positive.
type ListOptions struct {
	// Parent is the recorded name of one parent; empty means all.
	Parent string
	// FailedOnly leaves out what has not failed.
	FailedOnly bool
	Limit      int
	// Window is how many tombstones of a parent are looked at in each of the two parts of the queue where failed ones stand; 0 means 10,000.
	Window int
}

// TombstoneList is the beginning of a queue.
type TombstoneList struct {
	Tombstones []PendingTombstone
	// More counts tombstones that the limit left out. Capped reports that counting stopped, so there are at least as many.
	More   int64
	Capped bool
}

// List returns the first tombstones, failed ones before all others, and else by parent and in the order
// in which they are worked off. However long the queue is, it reads a bounded part of it.
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
	found = []PendingTombstone{}
	err = t.in(ctx, "list tombstones", func(q *dbsqlc.Queries, _ pgx.Tx) error {
		rows, err := q.TombstonesList(ctx, params)
		for _, row := range rows {
			found, total = append(found, PendingTombstone(row)), row.Total
		}
		return err
	})
	return found, total, err
}

// RetryOptions choose the tombstones to try again: by their ids, or of one parent, or all.
type RetryOptions struct {
	Parent string
	// IDs restrict the retry to these tombstones; empty means no restriction.
	IDs []int64
}

// Retried is the outcome for the tombstones that a retry was meant for.
type Retried struct {
	// Retried were made due. Due were so already and did not fail; they are counted where they were asked for by id.
	Retried int64 `json:"retried"`
	Due     int64 `json:"due"`
	// Busy are tombstones that a worker had in hand at that moment. They were left alone.
	Busy int64 `json:"busy"`
	// Unknown are the ids that no waiting tombstone has.
	Unknown []int64 `json:"unknown"`
}

// Retry makes failed tombstones due now, as if they had never failed. Done twice it changes nothing more. It
// reads the queue page by page, and never waits for a row that another session has locked. The counts are valid beside
// an error, too.
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
		page, err := asked(ctx, t, what, func(q *dbsqlc.Queries) ([]dbsqlc.TombstonesPageRow, error) { return q.TombstonesPage(ctx, next) })
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
			case unmet: // Or this very retry has put it behind its position.
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

// change runs do in a transaction of its own, and wakes workers where it has changed tombstones.
func (t Tombstones) change(ctx context.Context, what string, do func(q *dbsqlc.Queries) (int64, error)) (changed int64, err error) {
	err = t.in(ctx, what, func(q *dbsqlc.Queries, tx pgx.Tx) error {
		if changed, err = do(q); err != nil || changed == 0 {
			return err
		}
		return t.Wake(ctx, tx)
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

// parents are the recorded names of one parent or of all that have tombstones.
func (t Tombstones) parents(ctx context.Context, one string) ([]string, error) {
	if one != "" {
		return []string{one}, nil
	}
	return asked(ctx, t, "look for tombstones", func(q *dbsqlc.Queries) ([]string, error) { return q.TombstoneParents(ctx) })
}

// Count counts the waiting tombstones of a parent, up to most.
func (t Tombstones) Count(ctx context.Context, parent string, most int64) (int64, error) {
	return asked(ctx, t, "count tombstones of "+parent, func(q *dbsqlc.Queries) (int64, error) { return q.TombstonesCount(ctx, parent, most) })
}
