package riverjobs

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
	"github.com/robfig/cron/v3"

	"sexton/internal/config"
	"sexton/internal/dbsqlc"
)

const (
	// longestWait is the longest pause before a schedule is checked again. The clock may
	// be changed, and an insertion may fail.
	longestWait = time.Minute
	// lookahead is the time before a tick from which the tick counts as due. River
	// handles the ticks of the next moments together, so it may run a little early.
	lookahead = 100 * time.Millisecond
	// tickTimeout limits the statements of one tick.
	tickTimeout = 5 * time.Second
)

// Skipped is the end of the message that River logs at level info if a schedule has no
// due tick.
const Skipped = "nil returned from periodic job constructor, skipping"

// Tick is one schedule of a kind. Database may be "".
type Tick struct {
	Kind, Database string
	Schedule       cron.Schedule
	// Args are the arguments of the jobs that the schedule inserts.
	Args river.JobArgs

	ticker *ticker

	mu sync.Mutex
	// last is the last tick with a job, as it was last read from the database. offered is
	// the tick of the last job that construct returned.
	last, offered time.Time
}

var _ river.PeriodicSchedule = (*Tick)(nil)

// Ticks returns the schedules of the enabled kinds, one per kind and database.
func Ticks(c *config.Config) (ticks []*Tick, _ error) {
	for _, job := range Jobs(c) {
		if job.Inserted() {
			continue
		}
		cron, err := job.Cron.Parse()
		if err != nil {
			return nil, fmt.Errorf("parse schedule of %s: %w", job.Kind, err)
		}
		for i, name := range job.Databases {
			ticks = append(ticks, &Tick{
				Kind: job.Kind, Database: name, Schedule: Rotate(cron, i, len(job.Databases)), Args: job.ArgsOf(name),
			})
		}
	}
	return ticks, nil
}

// Schedules returns the names of the schedules of the enabled kinds, each as
// "kind/database".
func Schedules(c *config.Config) (schedules []string) {
	for _, job := range Jobs(c) {
		for _, name := range job.Databases {
			if !job.Inserted() {
				schedules = append(schedules, job.Kind+"/"+name)
			}
		}
	}
	return schedules
}

// Next implements river.PeriodicSchedule. River passes its last target time, which may be
// long ago. One job makes up for all ticks since then. An interval counts from the last
// tick, whichever client was the leader.
func (t *Tick) Next(at time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.ticker.now(); now.After(at) {
		at = now
	}
	at = at.UTC()
	if t.last.IsZero() { // The last tick has not been read. A search from the year 1 would not end.
		return at.Add(longestWait)
	}
	from := t.last
	if passed := LatestTick(t.Schedule, t.last, at); !passed.IsZero() {
		from = passed
	}
	next := t.Schedule.Next(from)
	if latest := at.Add(longestWait); next.IsZero() || latest.Before(next) {
		next = latest
	}
	return next
}

// construct is the constructor of River's periodic job. It returns the job of the latest
// tick if that tick has no job yet.
func (t *Tick) construct() (river.JobArgs, *river.InsertOpts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.offered = t.due(); t.offered.IsZero() {
		return nil, nil
	}
	// If this leader was suspended, another leader may have inserted the job of this
	// tick.
	ctx, cancel := context.WithTimeout(context.Background(), tickTimeout)
	defer cancel()
	if err := t.ticker.readLast(ctx, t); err != nil {
		t.ticker.deps.Logger.ErrorContext(ctx, "schedule_failed", "kind", t.Kind, "database", t.Database,
			"error", err)
		return nil, nil
	}
	if t.offered = t.due(); t.offered.IsZero() {
		return nil, nil
	}
	return t.Args, nil
}

func (t *Tick) due() time.Time {
	if t.last.IsZero() {
		return time.Time{}
	}
	return LatestTick(t.Schedule, t.last, t.ticker.now().UTC().Add(lookahead))
}

// id returns the schedule's name in the metadata of its jobs.
func (t *Tick) id() string { return t.Kind + ":" + t.Database }

// ticker makes River's leader continue each schedule after the last tick in
// sexton.schedules, whichever client was the leader. The row in sexton.schedules is
// written in the transaction in which River inserts the job, so both are committed or
// neither.
type ticker struct {
	river.PluginDefaults

	deps  Deps
	now   func() time.Time
	ticks map[string]*Tick
}

var _ rivertype.HookPeriodicJobsStart = (*ticker)(nil)

// newTicker returns River's periodic jobs for the schedules, and the plugin that they
// need.
func newTicker(deps Deps, ticks []*Tick) (*ticker, []*river.PeriodicJob) {
	k := &ticker{deps: deps, now: time.Now, ticks: map[string]*Tick{}}
	jobs := make([]*river.PeriodicJob, len(ticks))
	for i, t := range ticks {
		t.ticker = k
		k.ticks[t.id()] = t
		jobs[i] = river.NewPeriodicJob(t, t.construct, &river.PeriodicJobOpts{ID: t.id(), RunOnStart: true})
	}
	return k, jobs
}

// Start inserts rows for new schedules and reads the last tick of each schedule. A new
// schedule waits for its next tick. River calls Start on a new leader before the leader
// runs the schedules. If Start returns an error, the leader resigns.
func (k *ticker) Start(ctx context.Context, _ *rivertype.HookPeriodicJobsStartParams) error {
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	for _, t := range k.ticks {
		t.mu.Lock()
		err := k.deps.jobsDB().AsyncQueries().ScheduleInsert(ctx, t.Kind, t.Database, k.now())
		if err != nil {
			err = fmt.Errorf("insert schedule of %s: %w", t.Kind, err)
		} else {
			err = k.readLast(ctx, t)
		}
		last := t.last
		t.mu.Unlock()
		if err != nil {
			return err
		}
		if lead := last.Sub(k.now()); lead > longestWait {
			k.deps.Logger.WarnContext(ctx, "last_tick_in_future",
				"kind", t.Kind, "database", t.Database, "last_tick", last, "ahead_ms", lead.Milliseconds())
		}
	}
	return nil
}

// readLast reads the last tick of a schedule from the database. The caller holds the
// schedule's mutex.
func (k *ticker) readLast(ctx context.Context, t *Tick) error {
	last, err := k.deps.jobsDB().AsyncQueries().ScheduleLast(ctx, t.Kind, t.Database)
	if err != nil {
		return fmt.Errorf("read last tick of %s: %w", t.Kind, err)
	}
	t.last = last.UTC()
	return nil
}

// record advances the schedules whose jobs a transaction inserts or finds, in the same
// transaction. If the insertion fails, the next check finds the same tick due.
func (k *ticker) record(ctx context.Context, on riverdriver.Executor, jobs []*riverdriver.JobInsertFastParams) error {
	for _, job := range jobs {
		var of struct {
			ID string `json:"river:periodic_job_id"`
		}
		if json.Unmarshal(job.Metadata, &of) != nil || k.ticks[of.ID] == nil {
			continue
		}
		t := k.ticks[of.ID]
		t.mu.Lock()
		offered := t.offered
		t.mu.Unlock()
		if err := k.deps.jobsDB().Names.Queries(riverTx{on: on}).ScheduleAdvance(ctx, offered, t.Kind,
			t.Database); err != nil {
			return fmt.Errorf("record tick of %s: %w", t.Kind, err)
		}
	}
	return nil
}

// riverTx runs a generated query without results in one of River's transactions.
type riverTx struct {
	dbsqlc.DBTX

	on riverdriver.Executor
}

func (r riverTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, r.on.Exec(ctx, sql, args...) //nolint:wrapcheck // The caller adds the context.
}
