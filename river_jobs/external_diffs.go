package riverjobs

import (
	"context"
	"errors"
	"fmt"
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
	"sexton/internal/pgcatalog"
	"sexton/triggers"
)

// ScheduleExternalDiffs is the kind of the job that inserts jobs for diffs to be moved to
// object storage, and removes the objects of deleted diffs.
const ScheduleExternalDiffs = "schedule_migrate_external_diffs"

const (
	// scheduleLease is the key of the lease, and scheduleLeaseTTL is its duration. Both
	// are the same as in GitLab.
	scheduleLease    = "schedule_migrate_external_diffs_worker"
	scheduleLeaseTTL = 2 * time.Hour
	// scheduleRuntime limits a pass. It is a few seconds shorter than maxJobTime, so that
	// the pass can record its end.
	scheduleRuntime = 50 * time.Second
	// removalsPerRun limits the number of objects that one pass removes.
	removalsPerRun = 1000
)

// ScheduleExternalDiffsArgs has no fields, because the job continues where the last one
// stopped.
type ScheduleExternalDiffsArgs struct{}

// Kind returns the name of the kind, which is stored in jobs and must not change.
func (ScheduleExternalDiffsArgs) Kind() string { return ScheduleExternalDiffs }

// InsertOpts returns options that make the job unique until it finishes. The job has one
// attempt. The next tick or wake-up is the retry.
func (ScheduleExternalDiffsArgs) InsertOpts() river.InsertOpts {
	return uniqueOpts(ScheduleExternalDiffs, 1)
}

func scheduleDiffs(c *config.Config) kind[ScheduleExternalDiffsArgs] {
	return kind[ScheduleExternalDiffsArgs]{
		Job: Job{
			Cron:          c.ExternalDiffs.Schedule,
			Summary:       "inserts jobs that move diffs to object storage, and removes the objects of deleted diffs",
			DeletionTable: extdiff.Table,
			Wakes:         externalDiffsWakes(c),
			LimitedByTick: true,
			Check:         checkDiffs,
		},
		bounds: func(ScheduleExternalDiffsArgs) bounds { return bounds{lease: scheduleLease, ttl: scheduleLeaseTTL} },
		pass:   passScheduleDiffs,
		due: func(ctx context.Context, deps Deps, on listen.Querier, _ database.Database, _ bool) (listen.Due, error) {
			return externalDiffsDue(ctx, on, deps)
		},
	}
}

// externalDiffsWakes returns the tables that wake the job: the table of objects to remove
// and, if all diffs are moved, the table of diffs. A diff that becomes outdated does not
// wake the job. Its ID is lower than the IDs that were already read, so only the next
// tick finds it.
func externalDiffsWakes(c *config.Config) []triggers.Wake {
	wakes := []triggers.Wake{{Schema: pgcatalog.Schema, Table: extdiff.RemovalTable}}
	if c.ExternalDiffs.When == config.DiffRule(extdiff.Always) {
		wakes = append(wakes, triggers.Wake{
			Table: extdiff.Table,
			Due:   "NEW.files_count > 0 AND (NOT NEW.stored_externally OR NEW.stored_externally IS NULL)",
		})
	}
	return wakes
}

func diffRule(c *config.Config) extdiff.Rule { return extdiff.Rule(c.ExternalDiffs.When) }

// externalDiffsDue is the kind's predicate. It reports whether a diff or an object to
// remove is due, and when the next deferred removal is due. It reports that nothing is
// due while the queue is paused or the tick's limit is reached.
func externalDiffsDue(ctx context.Context, on listen.Querier, deps Deps) (listen.Due, error) {
	db := deps.jobsDB()
	var due listen.Due
	var blocked bool
	var seconds float64
	sql := "SELECT " + extdiff.RemovalDueSQL + " OR " + diffRule(deps.Config).DueSQL() + ", " + blockedSQL + ", " +
		extdiff.NextRemovalSQL
	if err := on.QueryRow(ctx, db.Names.Render(sql), ScheduleExternalDiffs, db.Name).Scan(&due.Now, &blocked,
		&seconds); err != nil {
		return listen.Due{}, fmt.Errorf("search for due diffs: %w", err)
	}
	due.Now = due.Now && !blocked
	due.In = max(0, time.Duration(seconds*float64(time.Second)))
	return due, nil
}

// useDiffs calls do with the process's shared engine of diffs.
func (d Deps) useDiffs(ctx context.Context, do func(*extdiff.Engine) error) error {
	return d.Bindings.diffs.Use(ctx, func(ctx context.Context) (*extdiff.Engine, error) {
		return OpenDiffs(ctx, d.Config, d.jobsDB(), d.Runner.Leases.Holder)
	}, do)
}

// OpenDiffStore opens the configured store of diffs. It returns a *blobstore.AccessError
// if the store cannot be used.
func OpenDiffStore(ctx context.Context, c *config.Config) (*blobstore.Store, error) {
	return blobstore.Open(ctx, string(c.ExternalDiffs.Bucket), blobstore.Options{Key: "external_diffs.bucket"})
}

// OpenDiffs returns an engine that moves diffs to the configured store. It returns a
// *blobstore.AccessError if the store cannot be used.
func OpenDiffs(ctx context.Context, c *config.Config, db database.Database, holder string) (*extdiff.Engine, error) {
	store, err := OpenDiffStore(ctx, c)
	if err != nil {
		return nil, err
	}
	return &extdiff.Engine{
		DB: db, Store: store, Owner: &extdiff.Owner{DB: db, Store: store}, Rule: diffRule(c), Holder: holder,
		Limits: extdiff.Limits{Transfer: longestTransfer},
	}, nil
}

// scheduleStats are the statistics of a pass.
type scheduleStats struct {
	extdiff.Schedule
	extdiff.Removed

	// WaitingFor is the reason for which objects could not be removed.
	WaitingFor string `json:"waiting_for,omitempty"`
}

func passScheduleDiffs(ctx context.Context, p *pass, _ ScheduleExternalDiffsArgs) (jobrun.Result, error) {
	working, cancel := context.WithTimeout(ctx, scheduleRuntime)
	defer cancel()
	stats := &scheduleStats{}
	err := stats.schedule(working, p)
	if err == nil {
		err = stats.remove(working, p)
	}
	result := stats.result()
	switch {
	case ctx.Err() != nil:
		result.Over, result.Stopped, err = false, true, nil
	case working.Err() != nil:
		result.Over, result.Left, err = true, "reached its time limit; the next run continues immediately", nil
	}
	return result, err
}

// result converts the statistics to the result of the pass.
func (s *scheduleStats) result() jobrun.Result {
	done, failed := s.Inserted+s.Objects, s.Removed.Failed
	result := jobrun.Result{
		Stats: s, Changed: done+failed > 0, Processed: done, Failed: failed, Reason: s.WaitingFor,
		Over: s.OverLimit || s.More, Left: "more diffs are due; the next run continues immediately",
		Counts: jobrun.Counts{metrics.DiffObjectsRemoved: {"": s.Objects}},
	}
	if s.OverLimit {
		result.Left = "more diffs are due; the next tick continues"
	}
	return result
}

func (s *scheduleStats) schedule(ctx context.Context, p *pass) error {
	conn, err := p.db.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to database %s: %w", p.db.Name, err)
	}
	defer conn.Release()
	scheduler := extdiff.Scheduler{
		Conn: conn.Conn(), Names: p.db.Names, Fence: p.granted, Rule: diffRule(p.Config),
		Limit: p.Config.ExternalDiffs.Limit,
	}
	found, err := scheduler.Run(ctx)
	if found != nil {
		s.Schedule = *found
	}
	return err
}

// remove removes objects of deleted diffs. If the store is unavailable, remove logs that
// and returns nil, because the pass has done all other work.
func (s *scheduleStats) remove(ctx context.Context, p *pass) error {
	var waiting bool
	if err := p.db.Pool.QueryRow(ctx, p.db.Names.Render("SELECT "+extdiff.RemovalDueSQL)).Scan(&waiting); err != nil ||
		!waiting {
		return err
	}
	err := p.useDiffs(ctx, func(engine *extdiff.Engine) (err error) {
		s.Removed, err = engine.Remove(ctx, removalsPerRun)
		return err
	})
	outage, ok := errors.AsType[*blobstore.OutageError](err)
	if !ok {
		return err
	}
	s.WaitingFor = outage.Error()
	p.log.WarnContext(ctx, "store_unavailable", "error", outage.Error())
	return nil
}

// MigrateExternalDiff is the kind of the job that moves one diff out of the database.
const MigrateExternalDiff = extdiff.MoveKind

const (
	// longestTransfer limits each statement that restores rows from an object.
	longestTransfer = 100 * time.Second
	// firstPause is the first pause after a failure. Pauses double up to longestPause, or
	// up to longestOutage if the store is expected to recover by itself.
	firstPause    = 10 * time.Second
	longestPause  = 15 * time.Minute
	longestOutage = time.Minute
	// longestBusy limits the pause while another process has claimed the diff. That claim
	// may end early.
	longestBusy = time.Minute
)

// MigrateExternalDiffArgs contains the ID of the diff.
type MigrateExternalDiffArgs struct {
	DiffID int64 `json:"diff_id" river:"unique"`
}

// Kind returns the name of the kind, which is stored in jobs and must not change.
func (MigrateExternalDiffArgs) Kind() string { return MigrateExternalDiff }

// InsertOpts returns options that make the job unique per diff until it finishes.
func (MigrateExternalDiffArgs) InsertOpts() river.InsertOpts {
	return uniqueOpts(MigrateExternalDiff, 3)
}

func migrateDiff(c *config.Config) kind[MigrateExternalDiffArgs] {
	return kind[MigrateExternalDiffArgs]{
		Job: Job{
			MaxWorkers: c.ExternalDiffs.MaxWorkers,
			Args:       map[string]string{"diff_id": migrate.Bigint},
			Row:        migrate.Row{Table: extdiff.Table, Column: "id", Argument: "diff_id"},
			Summary:    "moves the texts of one diff to object storage",

			DeletionTable: extdiff.Table,
		},
		// The job has no timeout, so River does not rescue it either. A move fails if no
		// byte is transferred, and the heartbeat gives back the jobs of dead workers. The
		// diff's claim replaces the lease.
		bounds:     func(MigrateExternalDiffArgs) bounds { return bounds{timeout: -1, long: true} },
		pass:       passMigrateDiff,
		startDelay: func(deps Deps) time.Duration { return deps.Bindings.store.wait(time.Now()) },
	}
}

// pauseAfter returns the next pause of a job that has paused the given number of times.
func pauseAfter(pauses int) time.Duration { return min(firstPause<<min(pauses, 10), longestPause) }

// moveStats are the statistics of a move.
type moveStats struct {
	extdiff.Moved

	// WaitingFor is the reason for which the diff could not be moved.
	WaitingFor string `json:"waiting_for,omitempty"`
	// Refused is true if the store cannot be used as it is configured, or not with this
	// process's credentials.
	Refused bool `json:"refused,omitempty"`
	// Latency is the time from the diff being due to the end of its move.
	Latency jobrun.Histogram `json:"latency_seconds,omitempty"`
}

// passMigrateDiff moves one diff. If the store is unavailable or refuses the request, or
// another process has claimed the diff, the pass is skipped and the job is snoozed
// without counting an attempt. If the store refuses requests, only the first pass of each
// pause fails.
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
			log.DebugContext(ctx, "latency_unknown", "error", unread)
		}
		return nil
	})
	if err != nil && ctx.Err() != nil {
		// A move that was interrupted by a stop does not mean that the store failed.
		return jobrun.Result{}, fmt.Errorf("diff %d: %w", args.DiffID, err)
	}
	outage, unavailable := errors.AsType[*blobstore.OutageError](err)
	busy, taken := errors.AsType[*extdiff.BusyError](err)
	refused, denied := errors.AsType[*blobstore.AccessError](err)
	stats.Refused = denied
	first := false
	result := jobrun.Result{Stats: stats}
	switch {
	case denied:
		p.later, first = p.Bindings.store.after(began, longestPause)
	case unavailable:
		p.later, _ = p.Bindings.store.after(began, longestOutage)
	}
	switch {
	case denied && !first:
		result.Skipped = refused.Error()
	case unavailable:
		result.Skipped = outage.Error()
		log.WarnContext(ctx, "store_unavailable", "error", outage.Error())
	case taken:
		p.later = min(max(busy.Left, busyRetry), longestBusy)
		result.Skipped, p.holder = busy.Error(), busy.Holder
	case err != nil:
		result.Failed = 1
		return result, fmt.Errorf("diff %d: %w", args.DiffID, err)
	case stats.Skipped != "":
		result.Changed, result.Reason = true, string(stats.Skipped)
		result.Counts = jobrun.Counts{metrics.DiffsSkipped: {result.Reason: 1}}
		log.InfoContext(ctx, "diff_skipped", "reason", result.Reason)
	default:
		p.Bindings.store.end(time.Now())
		result.Changed, result.Processed, result.Latency = true, 1, stats.Latency
		result.Counts = jobrun.Counts{metrics.DiffsMoved: {"": 1}, metrics.DiffBytesMoved: {"": stats.Bytes}}
		log.InfoContext(ctx, "diff_moved", "key", stats.Key, "bytes", stats.Bytes, "files", stats.Files)
	}
	stats.WaitingFor = result.Skipped
	return result, nil
}
