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
	// recheck is the longest pause between two looks at a schedule: the clock may be set,
	// and an insertion may fail.
	recheck = time.Minute
	// early is by how much River may come before a tick: it takes along what falls due
	// within that time.
	early = 100 * time.Millisecond
	// tickAnswer bounds the statements of one tick.
	tickAnswer = 5 * time.Second
)

// Skipped ends the line that River writes at level info for each look at a schedule that
// has no tick just then.
const Skipped = "nil returned from periodic job constructor, skipping"

// Tick is one schedule of a kind. Database may be empty.
type Tick struct {
	Kind, Database string
	Schedule       cron.Schedule
	// Args are those of the job of a tick.
	Args river.JobArgs

	ticker *ticker

	mu sync.Mutex
	// last is the last tick that has its job, as it was last read; offered is the one
	// that River has been given a job for.
	last, offered time.Time
}

var _ river.PeriodicSchedule = (*Tick)(nil)

// Ticks are the schedules of the enabled kinds, per database.
func Ticks(c *config.Config) (ticks []*Tick, _ error) {
	for _, job := range Jobs(c) {
		if job.Inserted() {
			continue
		}
		cron, err := job.Cron.Parse()
		if err != nil {
			return nil, fmt.Errorf("read schedule of %s: %w", job.Kind, err)
		}
		for i, name := range job.Databases {
			ticks = append(ticks, &Tick{
				Kind: job.Kind, Database: name, Schedule: Rotate(cron, i, len(job.Databases)), Args: job.ArgsOf(name),
			})
		}
	}
	return ticks, nil
}

// Schedules are those of the enabled kinds, as kind/database.
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

// Next implements river.PeriodicSchedule. River gives the time that it last aimed at,
// which may be long ago: however many ticks have passed since, one job makes up for all.
// An interval is counted from the last tick, no matter which client led then.
func (t *Tick) Next(at time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.ticker.now(); now.After(at) {
		at = now
	}
	at = at.UTC()
	if t.last.IsZero() { // Not yet read: from the year 1 on the search for the next tick has no end.
		return at.Add(recheck)
	}
	from := t.last
	if passed := LatestTick(t.Schedule, t.last, at); !passed.IsZero() {
		from = passed
	}
	next := t.Schedule.Next(from)
	if look := at.Add(recheck); next.IsZero() || look.Before(next) {
		next = look
	}
	return next
}

// offer is the constructor of River's periodic job: the job of the latest tick that has
// none yet, if there is such a tick.
func (t *Tick) offer() (river.JobArgs, *river.InsertOpts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.offered = t.due(); t.offered.IsZero() {
		return nil, nil
	}
	// A leader that was suspended may not know yet that another one leads, and has had
	// this tick.
	ctx, cancel := context.WithTimeout(context.Background(), tickAnswer)
	defer cancel()
	if err := t.ticker.look(ctx, t); err != nil {
		t.ticker.deps.Logger.ErrorContext(ctx, "schedule fails and is retried", "kind", t.Kind, "database", t.Database,
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
	return LatestTick(t.Schedule, t.last, t.ticker.now().UTC().Add(early))
}

// id is the schedule's name in the metadata of its jobs.
func (t *Tick) id() string { return t.Kind + ":" + t.Database }

// ticker makes River's leader follow the schedules from where they stand in
// sexton.schedules, regardless of when the last leader was there. The row is written in
// the transaction in which River inserts the job: it is never durable without its job.
type ticker struct {
	river.PluginDefaults

	deps  Deps
	now   func() time.Time
	ticks map[string]*Tick
}

var _ rivertype.HookPeriodicJobsStart = (*ticker)(nil)

// newTicker returns the schedules as River's periodic jobs, and the plugin that they
// need.
func newTicker(deps Deps, ticks []*Tick) (*ticker, []*river.PeriodicJob) {
	k := &ticker{deps: deps, now: time.Now, ticks: map[string]*Tick{}}
	jobs := make([]*river.PeriodicJob, len(ticks))
	for i, t := range ticks {
		t.ticker = k
		k.ticks[t.id()] = t
		jobs[i] = river.NewPeriodicJob(t, t.offer, &river.PeriodicJobOpts{ID: t.id(), RunOnStart: true})
	}
	return k, jobs
}

// Start is called by a new leader before it follows the schedules. A schedule without a
// row is new, and waits for its next tick. An error ends the term, so that another client
// may lead.
func (k *ticker) Start(ctx context.Context, _ *rivertype.HookPeriodicJobsStartParams) error {
	ctx, cancel := context.WithTimeout(ctx, tickAnswer)
	defer cancel()
	for _, t := range k.ticks {
		t.mu.Lock()
		err := k.deps.jobsDB().AsyncQueries().ScheduleEnter(ctx, t.Kind, t.Database, k.now())
		if err != nil {
			err = fmt.Errorf("insert schedule of %s: %w", t.Kind, err)
		} else {
			err = k.look(ctx, t)
		}
		last := t.last
		t.mu.Unlock()
		if err != nil {
			return err
		}
		if ahead := last.Sub(k.now()); ahead > recheck {
			k.deps.Logger.WarnContext(ctx, "last tick lies in the future, none comes before",
				"kind", t.Kind, "database", t.Database, "last_tick", last, "ahead_ms", ahead.Milliseconds())
		}
	}
	return nil
}

// look reads the last tick.
func (k *ticker) look(ctx context.Context, t *Tick) error {
	last, err := k.deps.jobsDB().AsyncQueries().ScheduleLast(ctx, t.Kind, t.Database)
	if err != nil {
		return fmt.Errorf("read last tick of %s: %w", t.Kind, err)
	}
	t.last = last.UTC()
	return nil
}

// record advances the schedules whose jobs a transaction inserts, or finds there already:
// tick and job are committed together, or neither. The next look at a schedule reads what
// became of it, and one whose insertion failed keeps its tick.
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

// riverTx runs a generated query that returns no rows in a transaction of River's.
type riverTx struct {
	dbsqlc.DBTX

	on riverdriver.Executor
}

func (r riverTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, r.on.Exec(ctx, sql, args...) //nolint:wrapcheck // The caller words it.
}
