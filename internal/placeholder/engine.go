package placeholder

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/pace"
)

const (
	// batchRows is how many rows are read at once; each is offered in a transaction of
	// its own.
	batchRows = 1000
	// reserve is the part of its lease that a run leaves, for the statement that is
	// running.
	reserve = time.Second
	// mostFailures is how many rows may be refused by the database.
	mostFailures = 100
)

// Engine offers the ownerless placeholders of one database.
type Engine struct {
	Session *batch.Session
	Rules   Rules
	// Start is the time of the first job, by the server's clock. Each further one comes
	// Spacing later.
	Start   time.Time
	Spacing time.Duration
	// Runtime is asked between rows.
	Runtime time.Duration
	// Offered, if set, is called for every attempt, after its commit.
	Offered func(ctx context.Context, item Item)
}

// row is one detail row. Rows whose job was waiting or running when they were read are
// not offered.
type row struct {
	id, userID int64
	waits      bool
}

// run is the state of one Run.
type run struct {
	*Engine

	stats *Stats
	// limits bound an offer: its waits get short once one has met a lock.
	limits batch.Limits
	// after is the id of the last row that was loaded.
	after int64
}

// Run offers all rows that can be, in the order of their ids, until the time is over or
// ctx ends. A row that the database refuses to touch stops no other. The statistics are
// valid beside an error, too, which is lease.ErrLost where the lease has passed on.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	r := &run{Engine: e, stats: &Stats{Errors: []batch.FaultCounts{}}, limits: e.Session.Limits, after: math.MinInt64}
	rows := pace.Items[row]{Page: r.page, One: r.offer, Failed: r.refused, Doing: func(next row) string {
		return fmt.Sprintf("offer placeholder user %d", next.userID)
	}}
	err := pace.Under(ctx, e.Session, e.Runtime, reserve, func(ctx context.Context, frame *pace.Frame) (err error) {
		r.stats.OverLimit, r.stats.Interrupted, err = rows.Each(ctx, frame)
		return err
	})
	return r.stats, err
}

// page returns the next rows in the order of their ids, without the rows whose job waits
// or runs. It continues after the last id, because those rows stay eligible.
func (r *run) page(ctx context.Context) (free []row, more bool, err error) {
	var loaded []row
	err = r.Session.ReadOwn(ctx, batch.Statement{
		SQL: r.Session.Names.Render(statement("load")), Args: append(r.Rules.args(), r.after, batchRows),
		Scan: batch.Collect(&loaded, func(found pgx.CollectableRow) (one row, err error) {
			err = found.Scan(&one.id, &one.userID, &one.waits)
			return one, err
		}),
	})
	if err != nil {
		return nil, false, fmt.Errorf("load placeholder users: %w", err)
	}
	if len(loaded) == 0 {
		return nil, false, nil
	}
	r.after = loaded[len(loaded)-1].id
	more = len(loaded) == batchRows
	free = slices.DeleteFunc(loaded, func(next row) bool { return next.waits })
	r.stats.Waiting += int64(len(loaded) - len(free))
	return free, more, nil
}

// offer inserts the job of one row and counts the attempt, together.
func (r *run) offer(ctx context.Context, next row) error {
	// The index counts jobs, not rows: one that was left behind leaves no gap.
	at := r.Start.Add(time.Duration(r.stats.Scheduled) * r.Spacing)
	var eligible bool
	var attempt *int64
	_, err := r.Session.RunWithin(ctx, r.limits, batch.Statement{
		SQL: r.Session.Names.Render(statement("offer")), Args: append(r.Rules.args(), next.id, at),
		Scan: batch.One(&eligible, &attempt),
	})
	switch {
	case err != nil:
		return err
	case !eligible:
		r.stats.Changed++
	case attempt == nil:
		r.stats.Waiting++
	default:
		r.count(ctx, Item{
			UserID: next.userID, Attempt: *attempt, Final: *attempt >= int64(r.Rules.MaxAttempts),
			ScheduledAt: at,
		})
	}
	return nil
}

// refused goes on behind a row that the database does not want to touch. So many rows are
// no longer to blame themselves. One that others have locked, or whose job a transaction
// asks for that does not end, has not failed.
func (r *run) refused(_ context.Context, _ row, f batch.Fault, cause error) error {
	switch {
	case f.Lock():
		r.stats.Changed++
		r.limits.LockTimeout = pace.ShortLockTimeout
	case r.stats.Failed == mostFailures:
		return cause
	default:
		r.stats.Failed++
	}
	f.Table = DetailsTable
	r.stats.Errors = batch.CountFault(r.stats.Errors, f)
	return nil
}

// count counts an attempt in the statistics and reports it.
func (r *run) count(ctx context.Context, item Item) {
	r.stats.Scheduled++
	r.stats.LastScheduledAt = &item.ScheduledAt
	if item.Final {
		r.stats.FinalAttempts++
	}
	if r.Offered != nil {
		r.Offered(ctx, item)
	}
}

// args are the first two parameters of every statement about rows that can be offered.
func (r Rules) args() []any { return []any{r.MaxAttempts, r.RetryPeriod.Seconds()} }
