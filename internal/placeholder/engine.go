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
	// batchRows is the number of rows of one query. Each row is offered in its own
	// transaction.
	batchRows = 1000
	// reserve is the time between the end of a run and the end of its lease, so that a
	// running statement can finish.
	reserve = time.Second
	// mostFailures is the number of failed rows after which a run ends.
	mostFailures = 100
)

// Engine offers the ownerless placeholders of one database.
type Engine struct {
	Session *batch.Session
	Rules   Rules
	// Start is the time of the first job, by the server's clock. Spacing is the time
	// between two jobs.
	Start   time.Time
	Spacing time.Duration
	// Runtime limits a run. It is checked between rows.
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
	// limits apply to each offer. The lock timeout is shorter after the first locked row.
	limits batch.Limits
	// after is the id of the last row that was loaded.
	after int64
}

// Run offers all eligible rows in the order of their ids, until the runtime has passed or
// ctx ends. A row that fails does not stop the run. The statistics are valid even if
// there is an error. The error wraps lease.ErrLost if another worker has taken the lease.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	r := &run{Engine: e, stats: &Stats{Errors: []batch.FaultCounts{}}, limits: e.Session.Limits, after: math.MinInt64}
	rows := pace.Items[row]{Page: r.page, One: r.offer, Failed: r.countFailure, Doing: func(next row) string {
		return fmt.Sprintf("offer placeholder user %d", next.userID)
	}}
	err := pace.Under(ctx, e.Session, e.Runtime, reserve, func(ctx context.Context, frame *pace.Frame) (err error) {
		r.stats.OverLimit, r.stats.Interrupted, err = rows.Each(ctx, frame)
		return err
	})
	return r.stats, err
}

// page returns the next rows in the order of their ids, without rows whose job is waiting
// or running. Those rows are still eligible, so each page begins after the last id.
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

// offer inserts the job of one row and counts the attempt in the same transaction.
func (r *run) offer(ctx context.Context, next row) error {
	// The time of a job depends on the number of new jobs, so a row without a new job
	// leaves no gap between the times.
	at := r.Start.Add(time.Duration(r.stats.Scheduled) * r.Spacing)
	var eligible bool
	var attempt *int64
	_, err := r.Session.RunWithin(ctx, r.limits, batch.Statement{
		SQL: r.Session.Names.Render(statement("offer")), Args: append(r.Rules.args(), next.id, at),
		Scan: batch.One(&eligible, &attempt),
	}, batch.CommitWithoutLockTimeout())
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

// countFailure counts a row that failed. After mostFailures failed rows it returns the
// error, because the rows are probably not the cause. A row does not count as failed if
// another session holds the lock on the row or on its job.
func (r *run) countFailure(_ context.Context, _ row, f batch.Fault, cause error) error {
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

// args returns the arguments $1 and $2 of each statement about eligible rows.
func (r Rules) args() []any { return []any{r.MaxAttempts, r.RetryPeriod.Seconds()} }
