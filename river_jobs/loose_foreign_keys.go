package riverjobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	"sexton/internal/migrate"
	"sexton/triggers"
)

// LooseForeignKeys is the kind of the job that cleans up after deleted parents.
const LooseForeignKeys = "loose_foreign_keys_cleanup"

// LooseForeignKeysCleanupArgs names the database whose deleted parents are cleaned up after.
type LooseForeignKeysCleanupArgs struct {
	Database string `json:"database" river:"unique"`
}

// Kind is frozen: it stands in the rows of running installations.
func (LooseForeignKeysCleanupArgs) Kind() string { return LooseForeignKeys }

// InsertOpts make the job unique per database while one is waiting or running. It is tried once: the next
// tick or wake-up is the retry.
func (LooseForeignKeysCleanupArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: LooseForeignKeys, MaxAttempts: 1, UniqueOpts: uniqueWhileUnfinished()}
}

// LooseForeignKeysCleanupWorker runs one pass per job.
type LooseForeignKeysCleanupWorker struct {
	river.WorkerDefaults[LooseForeignKeysCleanupArgs]

	deps Deps
}

// Timeout is the length of the lease, under which all writing ends, and what a slow network adds before and after.
func (w *LooseForeignKeysCleanupWorker) Timeout(job *river.Job[LooseForeignKeysCleanupArgs]) time.Duration {
	settings, _ := w.deps.Config.Database(job.Args.Database)
	return looseForeignKeysTTL(settings) + slowNetwork
}

// Work runs one pass. A lease that is taken is no error.
func (w *LooseForeignKeysCleanupWorker) Work(ctx context.Context, job *river.Job[LooseForeignKeysCleanupArgs]) error {
	return workPass(ctx, w.deps, job, runLooseForeignKeys, job.Args.Database, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		db, _ := w.deps.database(job.Args.Database)
		if db.Name == w.deps.jobsDB().Name {
			due, err := looseForeignKeysDue(ctx, w.deps, tx, db, false)
			return due.Now, err
		}
		// The look at the other database comes after the lock on this job, as it has to.
		due, err := looseForeignKeysDue(ctx, w.deps, db.Async(), db, false)
		return due.Now, err
	})
}

func looseForeignKeysJob(c *config.Config) Job {
	return Job{
		Kind: LooseForeignKeys, Queue: LooseForeignKeys, Schedule: string(c.LooseForeignKeys.Schedule),
		Cron: c.LooseForeignKeys.Schedule, MaxAttempts: 1,
		Args: map[string]string{"database": migrate.Text}, Defaults: map[string]any{"database": c.Databases[0].Name},
		Summary:       "deletes or changes the children of deleted parents",
		DeletionTable: "loose_foreign_keys_deleted_records",
		LimitedByTick: true,
		Databases:     names(c),
		ArgsOf:        func(database string) river.JobArgs { return LooseForeignKeysCleanupArgs{Database: database} },
		Lane:          looseForeignKeysLane,
		LeaseKey:      looseForeignKeysLease,
		Run:           runLooseForeignKeys,
	}
}

// names are those of all configured databases.
func names(c *config.Config) []string {
	names := make([]string, len(c.Databases))
	for i, db := range c.Databases {
		names[i] = db.Name
	}
	return names
}

func looseForeignKeysLane(deps Deps, db database.Database) *listen.Lane {
	key1, key2 := triggers.AwakeKey(db.Names.Jobs, LooseForeignKeys)
	return &listen.Lane{
		Kind: LooseForeignKeys, Database: db.Name,
		Key1: key1, Key2: key2,
		Tables: []string{db.Names.Render(`"public".loose_foreign_keys_deleted_records`)},
		Due: func(ctx context.Context, on listen.Querier, fresh bool) (listen.Due, error) {
			return looseForeignKeysDue(ctx, deps, on, db, fresh)
		},
		Work: func(ctx context.Context) (time.Duration, error) {
			return workThroughRiver(ctx, deps, LooseForeignKeys, LooseForeignKeysCleanupArgs{Database: db.Name})
		},
	}
}

func looseForeignKeysLease(database string) string {
	return "loose_foreign_keys/cleanup_worker:" + database
}

func looseForeignKeysTTL(settings config.Database) time.Duration {
	return settings.EffectiveLimits().Runtime + 10*time.Second
}

// runLooseForeignKeys runs one pass for one database under its lease.
func runLooseForeignKeys(ctx context.Context, deps Deps, pass Pass) (jobrun.Report, error) {
	name := pass.Database
	settings, configured := deps.Config.Database(name)
	db, connected := deps.database(name)
	if !configured || !connected {
		return jobrun.Report{}, fmt.Errorf("run %s: no database is configured under the name %q", LooseForeignKeys, name)
	}
	spec := jobrun.Spec{
		Kind: LooseForeignKeys, Database: name,
		LeaseKey: looseForeignKeysLease(name),
		LeaseTTL: looseForeignKeysTTL(settings),
		Fences:   []database.Database{db},
	}
	return deps.Runner.Do(ctx, spec, func(ctx context.Context, granted *lease.Lease, progress jobrun.Progress) (jobrun.Result, error) {
		stats, err := passLooseForeignKeys(ctx, deps, settings, db, granted, progress)
		if stats == nil {
			return jobrun.Result{}, err
		}
		result := jobrun.Result{
			Outcome: jobrun.Done, Stats: stats, Changed: stats.Changed(), Processed: stats.Processed,
			Counts: countsOf(stats), Faults: faultsOf(stats),
		}
		for _, counts := range stats.Errors {
			result.Failed += counts.Count
		}
		switch {
		case stats.OverLimit:
			result.Outcome = jobrun.OverLimit
		case stats.Interrupted:
			// For a reader, the same: there is more to do.
			result.Outcome, result.Reason = jobrun.OverLimit, "asked to stop before everything was done"
			if ctx.Err() == nil {
				result.Reason = because("its time was over before everything was done; the next run goes on at once", stats.Held)
			}
		}
		left := result.Outcome == jobrun.OverLimit && (ctx.Err() == nil || stats.Held != "")
		result.Held = heldUp(stats.DeleteCount+stats.UpdateCount+stats.Processed+stats.Revived, left, stats.Held, stats.Errors)
		return result, err
	})
}

// passLooseForeignKeys runs the engine on one connection. After errors the definitions are bound anew.
func passLooseForeignKeys(
	ctx context.Context, deps Deps, settings config.Database, db database.Database, granted *lease.Lease, progress jobrun.Progress,
) (*loosefk.Stats, error) {
	conn, err := db.Async().Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to database %s: %w", db.Name, err)
	}
	defer conn.Release()
	others := newOthers(deps, db.Name)
	defer others.release()
	var bound *binding
	if err := granted.During(ctx, func() (err error) {
		bound, err = bind(ctx, deps, db, conn, others)
		return err
	}); err != nil {
		return nil, err
	}
	limits := settings.EffectiveLimits()
	timeouts := deps.timeouts()
	elsewhere, err := others.elsewhere(ctx, granted, bound.parents, timeouts)
	if err != nil {
		return nil, err
	}
	session := &batch.Session{Conn: conn.Conn(), Names: db.Names, Fence: granted, Limits: timeouts}
	engine := loosefk.Engine{
		Database: db.Name, Pace: string(settings.Pace), Parents: bound.parents,
		Marks:    deps.Bindings.marksOf(db.Name),
		Adaptive: adaptive(settings.Pace, deps.Config.LooseForeignKeys),
		Confirming: loosefk.Confirming{
			Within: deps.Config.LooseForeignKeys.ConfirmWithin, Grace: deps.Config.LooseForeignKeys.ConfirmGrace,
		},
		Throttle: newThrottle(deps, LooseForeignKeys, settings.Pace, db, session, elsewhere).hooks(),
		Progress: reporter(progress),
		Limits:   loosefk.Limits{Deletes: limits.Deletes, Updates: limits.Updates, Runtime: limits.Runtime},
		Session:  session, Elsewhere: elsewhere,
		Lost: func(name string, err error) {
			other, _ := deps.database(name)
			_ = others.lose(ctx, other, other.Unreachable(err))
		},
	}
	stats, err := engine.Run(ctx)
	warnOfConfirming(ctx, deps, db, stats)
	if err == nil && len(stats.Errors) == 0 {
		deps.Bindings.keep(db.Name, bound)
	}
	return stats, err
}

// warnOfConfirming says where children stay because their parents live, and where children that come late may be missed, or are waited for blindly.
func warnOfConfirming(ctx context.Context, deps Deps, db database.Database, stats *loosefk.Stats) {
	log := deps.Logger.With("kind", LooseForeignKeys, "database", db.Name)
	if stats.ConfirmedEarly > 0 {
		log.WarnContext(ctx, "clean-up confirmed although older transactions are open: children that they insert now stay",
			"parents", stats.ConfirmedEarly, "confirm_within_s", deps.Config.LooseForeignKeys.ConfirmWithin.Seconds())
	}
	if stats.Revived > 0 {
		log.WarnContext(ctx, "deleted rows live under their keys: their children stay; see sexton tombstones list --revived", "revived", stats.Revived)
	}
	if stats.ConfirmBlind {
		log.WarnContext(ctx, "other roles' transactions cannot be seen, so clean-up is confirmed after a fixed time: grant the role pg_read_all_stats",
			"confirm_grace_s", deps.Config.LooseForeignKeys.ConfirmGrace.Seconds())
	}
}

// adaptive are the settings of the pace that steers itself, and none for the others.
func adaptive(pace config.Pace, settings config.LooseForeignKeys) loosefk.Adaptive {
	if pace != config.Adaptive {
		return loosefk.Adaptive{}
	}
	return loosefk.Adaptive{Target: settings.Target, Duty: float64(settings.Duty) / 100}
}

// trackNewPartitions puts triggers on partitions of tracked parents that came later. Where that is not
// possible the pass goes on: the rest of the work does not depend on it, and triggers status tells.
func trackNewPartitions(ctx context.Context, deps Deps, db database.Database, conn *pgxpool.Conn, parents []*loosefk.Parent) {
	cfg, tracked := Tracking(deps.Config, db, parents)
	installed, err := triggers.EnsurePartitions(ctx, conn.Conn(), cfg, tracked)
	if err != nil {
		deps.Logger.WarnContext(ctx, "partitions without triggers: their deletions are not recorded",
			"kind", LooseForeignKeys, "database", db.Name, "error", err)
	}
	if len(installed) > 0 {
		deps.Logger.InfoContext(ctx, "triggers installed on new partitions", "kind", LooseForeignKeys, "database", db.Name, "tables", installed)
	}
}

// Tracking says which triggers the parents need.
func Tracking(c *config.Config, db database.Database, parents []*loosefk.Parent) (triggers.Config, []triggers.Parent) {
	tracked := make([]triggers.Parent, len(parents))
	for i, parent := range parents {
		tracked[i] = triggers.Parent{Schema: parent.Schema, Table: parent.Name, KeyColumns: parent.KeyColumns}
	}
	cfg := triggers.Config{JobsSchema: db.Names.Jobs, TrackedSchema: db.Names.Tracked, Truncate: triggers.Policy(c.LooseForeignKeys.Truncate)}
	for _, job := range Jobs(c) {
		if slices.Contains(job.Databases, db.Name) && !job.Inserted() {
			cfg.Wake = append(cfg.Wake, job.wakesIn(db.Names.Tracked)...)
		}
	}
	return cfg, tracked
}
