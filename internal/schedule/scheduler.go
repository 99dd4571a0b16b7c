package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/robfig/cron/v3"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
)

const (
	// recheck is the longest wait: the clock may be set while a schedule waits for tomorrow.
	recheck = time.Minute
	// The pause after a failed attempt doubles from retryFirst to retryLongest.
	retryFirst   = 100 * time.Millisecond
	retryLongest = 5 * time.Second
	// turnTimeout bounds what a schedule does in the database at a time. Enqueueing may wait for a transaction
	// of an application that is enqueueing the same job.
	turnTimeout = 10 * time.Second
)

// Tick is one schedule of a kind of job, and to the function that enqueues also the moment it has come to.
type Tick struct {
	// Kind and Database name the schedule, no two have both in common. Database may be empty.
	Kind     string
	Database string
	Schedule cron.Schedule
	// At is the tick in UTC, set by the Scheduler. Where ticks were missed it is the latest of them.
	At time.Time
}

// Scheduler enqueues a run at each tick of its schedules, together with all copies that use the same
// database.
type Scheduler struct {
	// DB is the database with sexton.schedules and River's tables.
	DB    database.Database
	Ticks []Tick
	// Clock is nil for the system's.
	Clock Clock
	// Enqueue inserts the run in the transaction that records its tick, at READ COMMITTED. If it fails, the
	// tick is not recorded and comes again. It is called by one goroutine per Tick.
	Enqueue func(ctx context.Context, tx pgx.Tx, t Tick) error
	Logger  *slog.Logger
}

// Run follows all schedules until ctx ends. Failures are logged once per schedule and outage and retried
// after at most 5 s. An error means schedules that cannot be followed; nothing was done then.
func (s *Scheduler) Run(ctx context.Context) error {
	if err := s.check(); err != nil {
		return err
	}
	clock := s.Clock
	if clock == nil {
		clock = systemClock{}
	}
	var wg sync.WaitGroup
	for _, t := range s.Ticks {
		f := &follower{scheduler: s, clock: clock, tick: t, logger: s.Logger.With("kind", t.Kind, "database", t.Database)}
		wg.Go(func() { f.run(ctx) })
	}
	wg.Wait()
	return nil
}

func (s *Scheduler) check() error {
	if s.Enqueue == nil {
		return errors.New("start schedules: nothing enqueues")
	}
	type name struct{ kind, database string }
	seen := map[name]bool{}
	for _, t := range s.Ticks {
		n := name{kind: t.Kind, database: t.Database}
		switch {
		case t.Kind == "":
			return errors.New("start schedules: a schedule without a kind")
		case t.Schedule == nil:
			return fmt.Errorf("start schedules: kind %s has no schedule", t.Kind)
		case seen[n]:
			return fmt.Errorf("start schedules: kind %s and database %q occur twice", t.Kind, t.Database)
		}
		seen[n] = true
	}
	return nil
}

// follower follows one schedule, so that one whose transaction waits delays no other.
type follower struct {
	scheduler *Scheduler
	clock     Clock
	tick      Tick
	logger    *slog.Logger

	// seen is the row's last tick as far as this copy knows, zero if it has to look.
	seen time.Time
	// failing is when the outage began that has been logged, zero in good times.
	failing time.Time
	// ahead says that a last tick in the future has been logged.
	ahead bool
}

func (f *follower) run(ctx context.Context) {
	retry := retryFirst
	for {
		err := f.turn(ctx)
		if ctx.Err() != nil {
			return
		}
		f.report(ctx, err)
		var pause time.Duration
		if err != nil {
			pause, retry = retry, min(2*retry, retryLongest)
		} else {
			pause, retry = f.untilNext(), retryFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-f.clock.After(pause):
		}
	}
}

// report logs the begin and the end of an outage.
func (f *follower) report(ctx context.Context, err error) {
	switch {
	case err != nil && f.failing.IsZero():
		f.failing = f.clock.Now()
		f.logger.ErrorContext(ctx, "schedule fails and is retried", "error", err)
	case err == nil && !f.failing.IsZero():
		f.logger.InfoContext(ctx, "schedule works again", "outage_ms", f.clock.Now().Sub(f.failing).Milliseconds())
		f.failing = time.Time{}
	}
}

func (f *follower) untilNext() time.Duration {
	next := f.tick.Schedule.Next(f.seen)
	if next.IsZero() {
		return recheck
	}
	return min(next.Sub(f.now()), recheck)
}

// now is in UTC, as schedules without a time zone take that of the time they are asked about.
func (f *follower) now() time.Time { return f.clock.Now().UTC() }

// turn enqueues a run if a tick has come since the recorded one.
func (f *follower) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	if f.seen.IsZero() {
		if err := f.look(ctx); err != nil {
			return err
		}
	}
	now := f.now()
	f.warnOfFuture(ctx, now)
	tick := latest(f.tick.Schedule, f.seen, now)
	if tick.IsZero() {
		return nil
	}
	won, err := f.record(ctx, tick)
	if err != nil {
		return err
	}
	if !won {
		return f.look(ctx)
	}
	f.logger.DebugContext(ctx, "tick enqueued", "tick", tick, "previous", f.seen, "late_ms", now.Sub(tick).Milliseconds())
	f.seen = tick
	return nil
}

// warnOfFuture tells why nothing runs. Until its time the recorded tick stands for those in between, which
// may well have run before the clock was set back.
func (f *follower) warnOfFuture(ctx context.Context, now time.Time) {
	ahead := f.seen.Sub(now)
	if ahead > recheck && !f.ahead {
		f.logger.WarnContext(ctx, "last tick lies in the future, none comes before", "last_tick", f.seen, "ahead_ms", ahead.Milliseconds())
	}
	f.ahead = ahead > recheck
}

// look reads the last tick. A schedule without a row gets one that says now.
func (f *follower) look(ctx context.Context) error {
	queries := f.scheduler.DB.Queries()
	name := dbsqlc.ScheduleLastParams{Kind: f.tick.Kind, Database: f.tick.Database}
	last, err := queries.ScheduleLast(ctx, name)
	if errors.Is(err, pgx.ErrNoRows) {
		first := dbsqlc.ScheduleEnterParams{Kind: f.tick.Kind, Database: f.tick.Database, LastTick: f.now()}
		if err := queries.ScheduleEnter(ctx, first); err != nil {
			return fmt.Errorf("insert schedule of %s: %w", f.tick.Kind, err)
		}
		last, err = queries.ScheduleLast(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("read last tick of %s: %w", f.tick.Kind, err)
	}
	f.seen = last.UTC()
	return nil
}

// record moves the row from the seen tick to the given one and enqueues the run, unless the row has moved
// already: by another copy, or by this one, if the answer to an earlier COMMIT got lost.
func (f *follower) record(ctx context.Context, tick time.Time) (won bool, err error) {
	// With a stricter isolation level the copies that come second would fail instead of finding the row changed.
	readCommitted := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	err = pgx.BeginTxFunc(ctx, f.scheduler.DB.Pool, readCommitted, func(tx pgx.Tx) error {
		moved, err := f.scheduler.DB.Names.Queries(tx).ScheduleAdvance(ctx, dbsqlc.ScheduleAdvanceParams{
			Kind: f.tick.Kind, Database: f.tick.Database, Seen: f.seen, Tick: tick,
		})
		if err != nil || moved == 0 {
			return err
		}
		won = true
		due := f.tick
		due.At = tick
		return f.scheduler.Enqueue(ctx, tx, due)
	})
	if err != nil {
		return false, fmt.Errorf("enqueue %s for its tick at %s: %w", f.tick.Kind, tick.Format(time.RFC3339), err)
	}
	return won, nil
}
