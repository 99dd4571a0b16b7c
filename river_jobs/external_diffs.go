package riverjobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/riverqueue/river"

	"sexton/internal/blobstore"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/extdiff"
	"sexton/internal/jobrun"
	"sexton/internal/listen"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/triggers"
)

// ScheduleExternalDiffs is the kind of the job that looks for diffs to be moved out of the database, and removes the objects of
// deleted ones.
const ScheduleExternalDiffs = "schedule_migrate_external_diffs"

const (
	// scheduleLease and its length are the original's. It is given back at the end.
	scheduleLease    = "schedule_migrate_external_diffs_worker"
	scheduleLeaseTTL = 2 * time.Hour
	// scheduleRuntime leaves a pass a few seconds of its job's time to end in, which is maxJobTime.
	scheduleRuntime = 50 * time.Second
	// removalsPerRun bounds how many objects one run removes.
	removalsPerRun = 1000
)

// ScheduleExternalDiffsArgs are none: the job goes on where the last one has stopped.
type ScheduleExternalDiffsArgs struct{}

// Kind is frozen: it stands in the rows of running installations.
func (ScheduleExternalDiffsArgs) Kind() string { return ScheduleExternalDiffs }

// InsertOpts make the job unique while one is waiting or running. It is tried once: the next tick or wake-up is the retry.
func (ScheduleExternalDiffsArgs) InsertOpts() river.InsertOpts { return once(ScheduleExternalDiffs, 1) }

func scheduleDiffs(c *config.Config) kind[ScheduleExternalDiffsArgs] {
	return kind[ScheduleExternalDiffsArgs]{
		Job: Job{
			Cron:          c.ExternalDiffs.Schedule,
			Summary:       "looks for diffs to be moved to object storage, and removes the objects of deleted ones and of none",
			DeletionTable: extdiff.Table,
			Wakes:         externalDiffsWakes(c),
			LimitedByTick: true,
		},
		bounds: func(ScheduleExternalDiffsArgs) bounds { return bounds{lease: scheduleLease, ttl: scheduleLeaseTTL} },
		pass:   passScheduleDiffs,
		due: func(ctx context.Context, deps Deps, on listen.Querier, _ database.Database, _ bool) (listen.Due, error) {
			return externalDiffsDue(ctx, on, deps)
		},
	}
}

// externalDiffsWakes are an object to be removed and, where all diffs are moved, a diff that comes to be one with files. One becomes
// outdated by the passing of time or by a newer version. Neither wakes the job: its id is lower than those looked at already, and
// only the next round, of a tick, finds it.
func externalDiffsWakes(c *config.Config) []triggers.Wake {
	wakes := []triggers.Wake{{Schema: c.Jobs.Schema, Table: extdiff.RemovalTable}}
	if c.ExternalDiffs.When == config.DiffRule(extdiff.Always) {
		wakes = append(wakes, triggers.Wake{
			Table: extdiff.Table, Due: "NEW.files_count > 0 AND (NOT NEW.stored_externally OR NEW.stored_externally IS NULL)",
		})
	}
	return wakes
}

func diffRule(c *config.Config) extdiff.Rule { return extdiff.Rule(c.ExternalDiffs.When) }

func bySize(c *config.Config) bool { return c.ExternalDiffs.Order == "size" }

// roomEvery is how often a worker looks whether enough jobs have ended for the next pass of the same tick.
const roomEvery = 10 * time.Second

// roomSQL reports whether fewer than $4 jobs of the kind $3 have not ended.
const roomSQL = `(SELECT pg_catalog.count(*) FROM (
    SELECT FROM "sexton".river_job AS job
    WHERE job.queue = $3 AND job.kind = $3 AND job.state IN ('available', 'pending', 'retryable', 'running', 'scheduled')
    LIMIT $4
) AS unfinished) < $4`

// externalDiffsDue is the kind's one predicate: whether there is a diff that the next pass would look at, or an object to be
// removed, now, and in how long the next removal that was put off falls due. Paused, or this tick's limit spent: not now. Where a tick
// has more than one pass, diffs wait until there are fewer jobs than one pass may make.
func externalDiffsDue(ctx context.Context, on listen.Querier, deps Deps) (listen.Due, error) {
	c := deps.Config.ExternalDiffs
	condition := diffRule(deps.Config).DueSQL(bySize(deps.Config))
	db := deps.jobsDB()
	args, room := []any{ScheduleExternalDiffs, db.Name}, "true"
	if c.LimitPerTick > 0 {
		args, room = append(args, MigrateExternalDiff, c.Limit), roomSQL
	}
	var due listen.Due
	var diffs, hasRoom, barred bool
	var seconds float64
	sql := "SELECT " + extdiff.RemovalDueSQL + ", " + condition + ", " + room + ", " + barredSQL + ", " + extdiff.NextRemovalSQL
	if err := on.QueryRow(ctx, db.Names.Render(sql), args...).Scan(&due.Now, &diffs, &hasRoom, &barred, &seconds); err != nil {
		return listen.Due{}, fmt.Errorf("look for diffs to be moved: %w", err)
	}
	due.Now = !barred && (due.Now || diffs && hasRoom)
	due.In = max(0, time.Duration(seconds*float64(time.Second)))
	if !barred && diffs && !hasRoom && (due.In == 0 || due.In > roomEvery) {
		due.In = roomEvery
	}
	return due, nil
}

// useDiffs has do work with the one store of diffs of the process.
func (d Deps) useDiffs(ctx context.Context, do func(*extdiff.Engine) error) error {
	return d.Bindings.diffs.Use(ctx, func(ctx context.Context) (*extdiff.Engine, error) {
		return OpenDiffs(ctx, d.Config, d.jobsDB(), d.Logger, d.Runner.Leases.Holder)
	}, do)
}

// OpenDiffs opens the configured store of diffs. The engine opens the other one, where there is one, for the first diff that is there.
// An error is a *blobstore.AccessError.
func OpenDiffs(ctx context.Context, c *config.Config, db database.Database, log *slog.Logger, holder string) (*extdiff.Engine, error) {
	engine, err := OpenDiffsLike(ctx, &extdiff.Engine{
		DB: db, Rule: diffRule(c), Logger: log, Holder: holder, Limits: extdiff.Limits{Transfer: longestTransfer}, Switches: &extdiff.Switches{},
	}, "external_diffs.bucket", string(c.ExternalDiffs.Bucket))
	if err == nil && c.ExternalDiffs.OtherBucket != "" {
		engine.Other = &extdiff.Other{Open: func(ctx context.Context) (*extdiff.Engine, error) {
			return OpenDiffsLike(ctx, engine, "external_diffs.other_bucket", string(c.ExternalDiffs.OtherBucket))
		}}
	}
	return engine, err
}

// OpenDiffsLike opens the store of diffs at a URL, which messages name by key, for an engine like another one.
func OpenDiffsLike(ctx context.Context, like *extdiff.Engine, key, address string) (*extdiff.Engine, error) {
	store, err := blobstore.Open(ctx, address, blobstore.Options{Key: key, Logger: like.Logger})
	if err != nil {
		return nil, err
	}
	return like.On(store), nil
}

// scheduleStats are the statistics of a pass.
type scheduleStats struct {
	extdiff.Schedule
	extdiff.Removed
	extdiff.Swept

	// DueInTick counts the diffs that were handed on since the last tick. More reports that the next pass goes on in this tick.
	DueInTick int64 `json:"due_in_tick"`
	More      bool  `json:"more"`
	// WaitingFor is why objects could not be removed, or the store not be swept.
	WaitingFor string `json:"waiting_for,omitempty"`
}

func passScheduleDiffs(ctx context.Context, p *pass, _ ScheduleExternalDiffsArgs) (jobrun.Result, error) {
	working, cancel := context.WithTimeout(ctx, scheduleRuntime)
	defer cancel()
	stats := &scheduleStats{}
	if err := p.db.Async().QueryRow(working, p.db.Names.Render(handedOnSQL), ScheduleExternalDiffs, p.db.Name).Scan(&stats.DueInTick); err != nil {
		return jobrun.Result{}, fmt.Errorf("read what was handed on in this tick: %w", err) // Without statistics: a later pass goes by those.
	}
	err := stats.work(working, p)
	result := scheduleResult(stats)
	if working.Err() != nil {
		cutShort(&result, ctx.Err() == nil, true, "its time was over before everything was done; the next pass goes on at once")
		err = nil
	}
	return result, err
}

// handedOnSQL is how many diffs were handed on in this tick, by the last pass that says so: one that was killed, or could not begin, does not.
const handedOnSQL = `SELECT coalesce((SELECT CASE WHEN ` + inTickSQL + ` THEN (run.stats ->> 'due_in_tick')::bigint END` +
	passesSQL + ` AND run.stats ->> 'due_in_tick' IS NOT NULL` + lastSQL + `), 0)`

func (s *scheduleStats) work(ctx context.Context, p *pass) error {
	err := s.schedule(ctx, p)
	if err == nil {
		err = s.remove(ctx, p)
	}
	if err == nil && s.WaitingFor == "" && ctx.Err() == nil {
		err = s.sweep(ctx, p)
	}
	return err
}

func (s *scheduleStats) schedule(ctx context.Context, p *pass) error {
	conn, err := p.db.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to database %s: %w", p.db.Name, err)
	}
	defer conn.Release()
	limits := p.Config.ExternalDiffs
	limit := limits.Limit
	// One that is asked for although the tick's limit is spent has that of one pass.
	if left := perTick(limits) - s.DueInTick; left > 0 {
		limit = min(limit, int(left))
	}
	scheduler := extdiff.Scheduler{
		Conn: conn.Conn(), Names: p.db.Names, Fence: p.granted, Rule: diffRule(p.Config), BySize: bySize(p.Config), Limit: limit,
	}
	found, err := scheduler.Run(ctx)
	if found != nil {
		s.Schedule = *found
	}
	s.DueInTick += s.Due
	s.goOn(limits)
	return err
}

// perTick is how many diffs a tick hands on at most.
func perTick(c config.ExternalDiffs) int64 { return int64(max(c.Limit, c.LimitPerTick)) }

// goOn has the next pass follow in this tick where this one ended before the tick's limit was met: its time was over, too, where it has
// looked at many diffs and found few.
func (s *scheduleStats) goOn(c config.ExternalDiffs) {
	if s.OverLimit && s.DueInTick < perTick(c) {
		s.OverLimit, s.More = false, true
	}
}

// remove removes objects.
func (s *scheduleStats) remove(ctx context.Context, p *pass) error {
	var waiting bool
	if err := p.db.Pool.QueryRow(ctx, p.db.Names.Render("SELECT "+extdiff.RemovalDueSQL)).Scan(&waiting); err != nil || !waiting {
		return err
	}
	return s.available(ctx, p, p.useDiffs(ctx, func(engine *extdiff.Engine) (err error) {
		s.Removed, err = engine.Remove(ctx, removalsPerRun)
		return err
	}))
}

// sweep looks whose the store's objects are and, once in a while, removes objects without a row. Its place is kept where it is asked to stop.
func (s *scheduleStats) sweep(ctx context.Context, p *pass) error {
	settings := p.Config.ExternalDiffs.Sweep
	sweeper := extdiff.Sweeper{
		Fence: p.granted, Every: settings.Every, Grace: settings.Grace,
		Gone: func(object blobstore.Info) {
			p.log.InfoContext(ctx, "object_swept", "key", object.Key, "bytes", object.Size, "written_at", object.ModTime.UTC())
		},
	}
	if !settings.Enabled {
		sweeper.Every = 0
	}
	var refused error // Of one store or object: the other store is swept all the same.
	err := p.useDiffs(ctx, func(engine *extdiff.Engine) error {
		err := engine.Each(ctx, func(at *extdiff.Engine) error {
			sweeper.Engine = at
			swept, err := sweeper.Run(ctx)
			s.Swept = s.Swept.Plus(swept)
			if _, outage := errors.AsType[*blobstore.OutageError](err); outage {
				return err
			}
			refused = errors.Join(refused, err)
			return nil
		})
		return errors.Join(err, refused)
	})
	if s.HeldBack > 0 {
		p.log.WarnContext(ctx, "objects_held_back", "objects", s.HeldBack)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The next pass goes on.
	}
	if err := s.available(ctx, p, err); err != nil {
		return err
	}
	return refused
}

// available notes a store that is not: that is no fault of the pass, which has done the rest.
func (s *scheduleStats) available(ctx context.Context, p *pass, err error) error {
	outage, ok := errors.AsType[*blobstore.OutageError](err)
	if !ok {
		return err
	}
	s.WaitingFor = outage.Error()
	p.log.WarnContext(ctx, "store_unavailable", "error", outage.Error())
	return nil
}

func scheduleResult(stats *scheduleStats) jobrun.Result {
	done, failed := stats.Inserted+stats.Objects+stats.Swept.Swept, stats.Removed.Failed
	result := jobrun.Result{Outcome: jobrun.Done, Stats: stats, Reason: stats.WaitingFor, Processed: done, Failed: failed, Changed: done+failed > 0}
	if stats.OverLimit {
		result.Outcome, result.Reason = jobrun.OverLimit, "diffs are left; the next tick goes on"
	}
	if stats.More {
		result.Outcome, result.Reason = jobrun.OverLimit, "diffs are left; the next pass goes on in this tick"
	}
	result.Counts = counted(map[string]int64{metrics.DiffObjectsRemoved: stats.Objects, metrics.DiffObjectsSwept: stats.Swept.Swept}, nil)
	return result
}

// MigrateExternalDiff is the kind of the job that moves one diff out of the database.
const MigrateExternalDiff = extdiff.MoveKind

const (
	// longestTransfer bounds each statement that puts an object back into rows.
	longestTransfer = 100 * time.Second
	// Pauses begin with firstPause, and each is twice as long as the one before, up to longestPause, or longestOutage for a store that passes
	// requests again by itself.
	firstPause    = 10 * time.Second
	longestPause  = 15 * time.Minute
	longestOutage = time.Minute
	// longestBusy is when a job looks again whether another's claim has ended early.
	longestBusy = time.Minute
)

// MigrateExternalDiffArgs name the diff.
type MigrateExternalDiffArgs struct {
	DiffID int64 `json:"diff_id" river:"unique"`
}

// Kind is frozen: it stands in the rows of running installations.
func (MigrateExternalDiffArgs) Kind() string { return MigrateExternalDiff }

// InsertOpts make the job unique per diff while one is waiting or running.
func (MigrateExternalDiffArgs) InsertOpts() river.InsertOpts { return once(MigrateExternalDiff, 3) }

func migrateDiff(c *config.Config) kind[MigrateExternalDiffArgs] {
	return kind[MigrateExternalDiffArgs]{
		Job: Job{
			MaxWorkers: c.ExternalDiffs.MaxWorkers,
			Args:       map[string]string{"diff_id": migrate.Bigint},
			Row:        migrate.Row{Table: extdiff.Table, Column: "id", Argument: "diff_id"},
			Summary:    "moves the texts of one diff to object storage",

			DeletionTable: extdiff.Table,
		},
		// Without a timeout River's rescuer leaves the job alone, too: a move ends once no byte moves, and the heartbeat gives back the jobs of
		// dead workers. Instead of a lease it has the diff's own claim.
		bounds: func(MigrateExternalDiffArgs) bounds { return bounds{timeout: -1, long: true} },
		pass:   passMigrateDiff,
		before: func(deps Deps) time.Duration { return deps.Bindings.store.wait(time.Now()) },
	}
}

// pauseAfter is the length of the next pause, after so many.
func pauseAfter(pauses int) time.Duration { return min(firstPause<<min(pauses, 10), longestPause) }

// moveStats are the statistics of a move.
type moveStats struct {
	extdiff.Moved

	// WaitingFor is why the diff could not be moved now.
	WaitingFor string `json:"waiting_for,omitempty"`
	// Refused reports that the store cannot be used as it is configured, or not with this process's credentials.
	Refused bool `json:"refused,omitempty"`
	// Latency is the time since a diff that was moved fell due.
	Latency jobrun.Histogram `json:"latency_seconds,omitempty"`
}

// passMigrateDiff moves one diff. It is skipped where it has to wait, and done where there was nothing to do. Where the store is not
// available or refuses, or another process works on the diff, the job comes back later, which costs no attempt: with the end of the other's
// claim. Of the runs that the store refuses, the first one of a pause fails, and one during which another
// diff was moved.
func passMigrateDiff(ctx context.Context, p *pass, args MigrateExternalDiffArgs) (jobrun.Result, error) {
	began := time.Now()
	stats, log := &moveStats{Moved: extdiff.Moved{DiffID: args.DiffID}}, p.log.With("diff_id", args.DiffID)
	err := p.useDiffs(ctx, func(engine *extdiff.Engine) (err error) {
		if stats.Moved, err = engine.Move(ctx, args.DiffID); err != nil || stats.Skipped != "" {
			return err
		}
		if since, unread := engine.DueSince(ctx, args.DiffID); unread == nil {
			stats.Latency.Add(time.Since(since))
		} else {
			log.DebugContext(ctx, "latency is unknown", "error", unread)
		}
		return nil
	})
	if err != nil && ctx.Err() != nil {
		return jobrun.Result{}, fmt.Errorf("diff %d: %w", args.DiffID, err) // A stop on request is no failure, and says nothing of the store.
	}
	outage, out := errors.AsType[*blobstore.OutageError](err)
	busy, taken := errors.AsType[*extdiff.BusyError](err)
	refused, no := errors.AsType[*blobstore.AccessError](err)
	stats.Refused = no
	first := false
	switch {
	case no:
		p.later, first = p.Bindings.store.after(began, longestPause)
	case out:
		p.later, _ = p.Bindings.store.after(began, longestOutage)
	}
	switch {
	case no && !first:
		stats.WaitingFor = refused.Error()
	case out:
		stats.WaitingFor = outage.Error()
		log.WarnContext(ctx, "store_unavailable", "error", outage.Error())
	case taken:
		p.later = min(max(busy.Left, busyRetry), longestBusy)
		stats.WaitingFor, p.holder = busy.Error(), busy.Holder
	case err != nil:
		return jobrun.Result{Stats: stats, Failed: 1}, fmt.Errorf("diff %d: %w", args.DiffID, err)
	case stats.Skipped != "":
		log.InfoContext(ctx, "diff_skipped", "reason", string(stats.Skipped))
	default:
		p.Bindings.store.end(time.Now())
		log.InfoContext(ctx, "diff_moved", "key", stats.Key, "bytes", stats.Bytes, "files", stats.Files)
	}
	return moveResult(stats), nil
}

func moveResult(stats *moveStats) jobrun.Result {
	result := jobrun.Result{Outcome: jobrun.Done, Stats: stats, Changed: true}
	switch {
	case stats.WaitingFor != "":
		result.Outcome, result.Reason, result.Changed = jobrun.Skipped, stats.WaitingFor, false
		if stats.BrokenOff {
			result.Counts = []jobrun.Count{{Metric: metrics.DiffUploadsBroken, N: 1}}
		}
	case stats.Skipped != "":
		result.Reason = string(stats.Skipped)
		result.Counts = []jobrun.Count{{Metric: metrics.DiffsSkipped, Reason: result.Reason, N: 1}}
	default:
		result.Processed, result.Latency = 1, stats.Latency
		result.Counts = []jobrun.Count{{Metric: metrics.DiffsMoved, N: 1}, {Metric: metrics.DiffBytesMoved, N: stats.Bytes}}
		if stats.Kept > 0 {
			result.Counts = append(result.Counts, jobrun.Count{Metric: metrics.DiffUploadsResumed, N: 1})
		}
	}
	return result
}
