package groupschedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/fault"
)

const (
	defaultPage = 100
	// reserve is the part of its lease that a pass leaves: for the group in hand, and to settle.
	reserve = time.Second
)

// Engine decides about the due groups of one database.
type Engine struct {
	Session *batch.Session
	// Page is how many groups are looked up at a time; 0 stands for 100.
	Page int
	// Spacing is the time between the starts of two destructions; with 0 all may begin now.
	Spacing time.Duration
	// Runtime ends a pass, and so does the end of its lease; 0 stands for the lease alone.
	Runtime time.Duration
	// Progress, if set, is shown the statistics after every group. It must not keep them.
	Progress func(ctx context.Context, stats *Stats)
	// Decided, if set, is told of every group.
	Decided func(ctx context.Context, decision Decision)
}

// Run decides about one due group after the other, by their ids, until none is left, its time is over, or ctx ends; the
// group in hand is finished first. The statistics are valid beside an error, too. The error wraps lease.ErrLost where the
// lease has passed on; then nothing of the last transaction remains.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	hard, cancel := e.Session.Fence.Context(context.WithoutCancel(ctx))
	defer cancel()
	r := &run{engine: e, stop: ctx, stats: &Stats{Errors: []fault.Counts{}}}
	if deadline, ok := hard.Deadline(); ok {
		r.until = deadline.Add(-reserve)
	}
	if limit := time.Now().Add(e.Runtime); e.Runtime > 0 && (r.until.IsZero() || limit.Before(r.until)) {
		r.until = limit
	}
	err := r.work(hard)
	if cause := context.Cause(hard); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	return r.stats, err
}

// run is the state of one Run.
type run struct {
	engine *Engine
	stop   context.Context //nolint:containedctx // asked between groups; a transaction that has begun outlives it
	stats  *Stats
	until  time.Time
	// start is when the next destruction may begin.
	start time.Time
}

// ended reports whether no further group may be decided about.
func (r *run) ended() bool {
	return r.stop.Err() != nil || !r.until.IsZero() && !time.Now().Before(r.until)
}

func (r *run) work(ctx context.Context) error {
	if err := r.open(ctx); err != nil || r.stats.Cutoff == nil {
		return err
	}
	page := r.engine.Page
	if page <= 0 {
		page = defaultPage
	}
	for last, more := int64(0), true; more; {
		ids, err := r.page(ctx, last, page)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if r.ended() {
				r.stats.Interrupted = r.stop.Err() != nil
				r.stats.OverLimit = !r.stats.Interrupted
				return nil
			}
			if err := r.decide(ctx, id); err != nil {
				return fmt.Errorf("decide about group %d: %w", id, err)
			}
			last = id
		}
		more = len(ids) == page
	}
	return nil
}

// open reads the cutoff and when the first destruction may begin, and tidies up.
func (r *run) open(ctx context.Context) error {
	names := r.engine.Session.Names
	_, err := r.engine.Session.Run(ctx,
		batch.Statement{SQL: names.Render(forgetSQL)},
		batch.Statement{SQL: names.Render(forgetGoneSQL)},
		batch.Statement{SQL: names.Render(openingSQL), Args: []any{r.engine.Spacing.Seconds()}, Scan: func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&r.stats.Cutoff, &r.start); err != nil {
					return err
				}
			}
			return rows.Err()
		}})
	if err != nil {
		return fmt.Errorf("read period of groups: %w", err)
	}
	return nil
}

func (r *run) page(ctx context.Context, after int64, limit int) ([]int64, error) {
	var ids []int64
	_, err := r.engine.Session.Run(ctx, batch.Statement{
		SQL: r.engine.Session.Names.Render(pageSQL), Args: []any{after, limit},
		Scan: func(rows pgx.Rows) (err error) {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("load due groups: %w", err)
	}
	return ids, nil
}

// decide takes one transaction. Its error ends the pass; what concerns the group alone puts the group off.
func (r *run) decide(ctx context.Context, id int64) error {
	decision := Decision{GroupID: id, RunAt: r.start}
	_, err := r.engine.Session.Run(ctx, batch.Statement{
		SQL: r.engine.Session.Names.Render(decideSQL), Args: []any{id, r.start},
		Scan: func(rows pgx.Rows) error {
			for rows.Next() {
				if err := rows.Scan(&decision.Outcome, &decision.UserID, &decision.Path, &decision.Reason); err != nil {
					return err
				}
			}
			return rows.Err()
		},
	})
	if err != nil {
		f := fault.Judge(err)
		if f.Verdict == fault.Fatal || f.Verdict == fault.Hopeless {
			return err
		}
		f.Table = "groups"
		decision.Outcome, decision.Fault = Failed, f
		if err := r.putOff(ctx, id, f); err != nil {
			return err
		}
	}
	if decision.Outcome == Enqueued {
		// Only groups that are destroyed take up time.
		r.start = r.start.Add(r.engine.Spacing)
	}
	r.stats.count(decision)
	if r.engine.Decided != nil {
		r.engine.Decided(ctx, decision)
	}
	if r.engine.Progress != nil {
		r.engine.Progress(ctx, r.stats)
	}
	return nil
}

func (r *run) putOff(ctx context.Context, id int64, f fault.Fault) error {
	_, err := r.engine.Session.Run(ctx, batch.Statement{
		SQL: r.engine.Session.Names.Render(putOffSQL), Args: []any{id, fmt.Sprintf("SQLSTATE %s: %s", f.SQLState, f.Message)},
	})
	if err != nil {
		return fmt.Errorf("put it off: %w", err)
	}
	return nil
}
