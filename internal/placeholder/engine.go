package placeholder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/fault"
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
	stop  context.Context //nolint:containedctx // asked between rows; the statements themselves outlive it
	until time.Time
	// blind ends the looks at many users in one statement, unasked the questions for tombstones.
	blind, unasked bool
}

// Run offers all rows that can be, in the order of their ids, until the time is over or ctx ends. A row that the database
// refuses to touch stops no other. The statistics are valid beside an error, too, which is lease.ErrLost where the lease has
// passed on.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	hard, cancel := e.Session.Fence.Context(context.WithoutCancel(ctx))
	defer cancel()
	r := &run{Engine: e, stats: &Stats{Errors: []fault.Counts{}}, stop: ctx, until: time.Now().Add(e.Runtime)}
	if deadline, ok := hard.Deadline(); ok && deadline.Add(-reserve).Before(r.until) {
		r.until = deadline.Add(-reserve)
	}
	err := r.work(hard)
	if cause := context.Cause(hard); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	return r.stats, err
}

// ended reports whether the run ends here, and notes why.
func (r *run) ended() bool {
	r.stats.Interrupted = r.stop.Err() != nil
	r.stats.OverLimit = !r.stats.Interrupted && !time.Now().Before(r.until)
	return r.stats.Interrupted || r.stats.OverLimit
}

// work goes through the rows by their ids, as rows that are left behind, because their job waits, stay eligible.
func (r *run) work(ctx context.Context) error {
	for after := int64(math.MinInt64); ; {
		rows, err := r.load(ctx, after)
		if err != nil {
			return err
		}
		full := len(rows) == batchRows
		for some := range slices.Chunk(rows, lookRows) {
			after = some[len(some)-1].id
			if err := r.take(ctx, some); err != nil || r.stats.Interrupted || r.stats.OverLimit {
				return err
			}
		}
		if !full {
			return nil
		}
	}
}

// take keeps or offers some rows, until the run ends.
func (r *run) take(ctx context.Context, rows []row) (err error) {
	if r.ended() {
		return nil
	}
	free := slices.DeleteFunc(slices.Clone(rows), func(next row) bool { return next.waits })
	r.stats.Waiting += int64(len(rows) - len(free))
	if r.References != nil {
		if free, err = r.keep(ctx, free); err != nil {
			return err
		}
	}
	for _, next := range free {
		if r.ended() {
			return nil
		}
		if err := r.offer(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) load(ctx context.Context, after int64) ([]row, error) {
	var found []row
	_, err := r.Session.Run(ctx, batch.Statement{
		SQL: r.Session.Names.Render(loadSQL()), Args: append(r.Rules.args(), after, batchRows),
		Scan: func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, func(collected pgx.CollectableRow) (row, error) {
				var one row
				err := collected.Scan(&one.id, &one.userID, &one.attempts, &one.blockedBy, &one.placeholder, &one.waits)
				return one, err
			})
			return err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("load placeholder users: %w", err)
	}
	return found, nil
}

// offer inserts the job of one row and counts the attempt, together.
func (r *run) offer(ctx context.Context, next row) error {
	// The index counts jobs, not rows: one that was left behind leaves no gap.
	at := r.Start.Add(time.Duration(r.stats.Scheduled) * r.Spacing)
	var eligible bool
	var attempt *int64
	_, err := r.Session.Run(ctx, batch.Statement{
		SQL: r.Session.Names.Render(offerSQL()), Args: append(r.Rules.args(), next.id, at),
		Scan: func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&eligible, &attempt}, func() error { return nil })
			return err
		},
	})
	switch {
	case err != nil:
		return r.refused(next, err)
	case !eligible:
		r.stats.Changed++
	case attempt == nil:
		r.stats.Waiting++
	default:
		r.tell(ctx, Item{UserID: next.userID, Attempt: *attempt, Final: *attempt >= int64(r.Rules.MaxAttempts), ScheduledAt: at})
	}
	return nil
}

// refused goes on behind a row that the database does not want to touch. What concerns connection, server or statement, or so
// many rows that no single one is to blame, ends the run.
func (r *run) refused(next row, err error) error {
	f := fault.Judge(err)
	if f.Verdict == fault.Fatal || f.Verdict == fault.Hopeless || r.stats.Failed == mostFailures {
		return fmt.Errorf("offer placeholder user %d: %w", next.userID, err)
	}
	f.Table = detailsTable
	r.stats.Failed++
	r.stats.Errors = fault.Count(r.stats.Errors, f)
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
