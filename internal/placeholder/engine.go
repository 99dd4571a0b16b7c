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
	// batchRows is how many rows are read at once; each is offered in a transaction of its own.
	batchRows = 1000
	// reserve is the part of its lease that a run leaves, for the statement that is running.
	reserve = time.Second
	// mostFailures is how many rows may be refused by the database.
	mostFailures = 100
)

// Engine offers the ownerless placeholders of one database.
type Engine struct {
	Session *batch.Session
	Rules   Rules
	// Start is the time of the first job, by the server's clock. Each further one comes Spacing later.
	Start   time.Time
	Spacing time.Duration
	// Runtime is asked between rows.
	Runtime time.Duration
	// References, if set, are looked at before a row is offered, many rows in one statement: a row that they keep needs no job.
	References *References
	// Pending, if set, returns the tables with tombstones that may take rows of these columns along. After an error it is not called
	// again in this run, and references are left to jobs.
	Pending func(ctx context.Context, columns []string) ([]string, error)
	// Offered, if set, is told of every attempt, after its commit.
	Offered func(ctx context.Context, item Item)
}

// row is one detail row. Where its job waited as it was read, there is nothing to offer.
type row struct {
	id, userID, attempts int64
	// blockedBy are the columns that kept it at its last attempt; placeholder reports whether the user still is one.
	blockedBy          []string
	waits, placeholder bool
}

// run is the state of one Run.
type run struct {
	*Engine

	stats *Stats
	frame *pace.Frame
	// limits bound an offer: its waits get short once one has met a lock.
	limits batch.Limits
	// loaded are rows that are not looked at yet, after is the last one that was loaded; full reports that more may follow it.
	loaded []row
	after  int64
	full   bool
	// blind ends the looks at many users in one statement, unasked the questions for tombstones.
	blind, unasked bool
}

// Run offers all rows that can be, in the order of their ids, until the time is over or ctx ends. A row that the database
// refuses to touch stops no other. The statistics are valid beside an error, too, which is lease.ErrLost where the lease has
// passed on.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	r := &run{Engine: e, stats: &Stats{Errors: []batch.FaultCounts{}}, limits: e.Session.Limits, after: math.MinInt64}
	rows := pace.Items[row]{Page: r.page, One: r.offer, Failed: r.refused, Doing: func(next row) string {
		return fmt.Sprintf("offer placeholder user %d", next.userID)
	}}
	err := pace.Under(ctx, e.Session, e.Runtime, reserve, func(ctx context.Context, frame *pace.Frame) (err error) {
		r.frame = frame
		r.stats.OverLimit, r.stats.Interrupted, err = rows.Each(ctx, frame)
		return err
	})
	return r.stats, err
}

// page takes the next rows, by their ids, as rows that are left behind, because their job waits, stay eligible. It keeps some of them and
// returns the others.
func (r *run) page(ctx context.Context) (free []row, more bool, err error) {
	if len(r.loaded) == 0 {
		if err := r.load(ctx); err != nil || len(r.loaded) == 0 {
			return nil, false, err
		}
	}
	if r.frame.Ended() {
		return r.loaded, true, nil // Each finds that out, too.
	}
	some := r.loaded[:min(len(r.loaded), lookRows)]
	r.loaded = r.loaded[len(some):]
	free = slices.DeleteFunc(slices.Clone(some), func(next row) bool { return next.waits })
	r.stats.Waiting += int64(len(some) - len(free))
	if r.References != nil {
		free, err = r.keep(ctx, free)
	}
	return free, len(r.loaded) > 0 || r.full, err
}

func (r *run) load(ctx context.Context) error {
	_, err := r.Session.Run(ctx, batch.Statement{
		SQL: r.Session.Names.Render(statement("load")), Args: append(r.Rules.args(), r.after, batchRows),
		Scan: batch.Collect(&r.loaded, func(found pgx.CollectableRow) (one row, err error) {
			err = found.Scan(&one.id, &one.userID, &one.attempts, &one.blockedBy, &one.placeholder, &one.waits)
			return one, err
		}),
	})
	if err != nil {
		return fmt.Errorf("load placeholder users: %w", err)
	}
	if r.full = len(r.loaded) == batchRows; len(r.loaded) > 0 {
		r.after = r.loaded[len(r.loaded)-1].id
	}
	return nil
}

// offer inserts the job of one row and counts the attempt, together.
func (r *run) offer(ctx context.Context, next row) error {
	// The index counts jobs, not rows: one that was left behind leaves no gap.
	at := r.Start.Add(time.Duration(r.stats.Scheduled) * r.Spacing)
	var eligible bool
	var attempt *int64
	_, err := r.Session.RunWithin(ctx, r.limits, batch.Statement{
		SQL: r.Session.Names.Render(statement("offer")), Args: append(r.Rules.args(), next.id, at), Scan: batch.One(&eligible, &attempt),
	})
	switch {
	case err != nil:
		return err
	case !eligible:
		r.stats.Changed++
	case attempt == nil:
		r.stats.Waiting++
	default:
		r.tell(ctx, Item{UserID: next.userID, Attempt: *attempt, Final: *attempt >= int64(r.Rules.MaxAttempts), ScheduledAt: at})
	}
	return nil
}

// refused goes on behind a row that the database does not want to touch. So many rows are no longer to blame themselves. One that others have
// locked, or whose job a transaction asks for that does not end, has not failed.
func (r *run) refused(_ context.Context, _ row, f batch.Fault, cause error) error {
	switch {
	case f.Lock():
		r.stats.Changed++
		r.limits.LockTimeout = pace.LockAgain
	case r.stats.Failed == mostFailures:
		return cause
	default:
		r.stats.Failed++
	}
	f.Table = DetailsTable
	r.stats.Errors = batch.CountFault(r.stats.Errors, f)
	return nil
}

// tell counts an attempt in the statistics and reports it.
func (r *run) tell(ctx context.Context, item Item) {
	switch {
	case !item.Kept:
		r.stats.Scheduled++
		r.stats.LastScheduledAt = &item.ScheduledAt
	case item.Blockers == nil:
		r.stats.Counted++
	default:
		r.stats.Kept++
		for _, b := range item.Blockers {
			if r.stats.References == nil {
				r.stats.References = map[string]int64{}
			}
			r.stats.References[b.Column]++
		}
	}
	if item.Final {
		r.stats.FinalAttempts++
	}
	if r.Offered != nil {
		r.Offered(ctx, item)
	}
}

// args are the first two parameters of every statement about rows that can be offered.
func (r Rules) args() []any { return []any{r.MaxAttempts, r.RetryPeriod.Seconds()} }
