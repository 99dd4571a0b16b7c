package riverjobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/ghostuser"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/listen"
	"sexton/internal/metrics"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/triggers"
)

// GhostUsers is the kind of the job that deletes users, whose contributions pass to the ghost user.
const GhostUsers = "users_migrate_records_to_ghost_user_in_batches"

// ghostQueue is the table in which users wait for it.
const ghostQueue = "users_ghost_user_migrations"

// MigrateRecordsToGhostUserArgs are none: the job takes every user who is due.
type MigrateRecordsToGhostUserArgs struct{}

// Kind is frozen: it stands in the rows of running installations.
func (MigrateRecordsToGhostUserArgs) Kind() string { return GhostUsers }

// InsertOpts make the job unique while one is waiting or running. It is tried once: the next tick or wake-up is the retry.
func (MigrateRecordsToGhostUserArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: GhostUsers, MaxAttempts: 1, UniqueOpts: uniqueWhileUnfinished()}
}

// MigrateRecordsToGhostUserWorker runs one pass per job.
type MigrateRecordsToGhostUserWorker struct {
	river.WorkerDefaults[MigrateRecordsToGhostUserArgs]

	deps Deps
}

// Timeout is the length of the lease, under which all writing ends, and what a slow network adds before and after.
func (w *MigrateRecordsToGhostUserWorker) Timeout(*river.Job[MigrateRecordsToGhostUserArgs]) time.Duration {
	return w.deps.Config.GhostUsers.MaxRuntime + slowNetwork
}

// Work runs one pass. A lease that is taken is no error.
func (w *MigrateRecordsToGhostUserWorker) Work(ctx context.Context, job *river.Job[MigrateRecordsToGhostUserArgs]) error {
	return workPass(ctx, w.deps, job, runGhostUsers, w.deps.jobsDB().Name, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		due, err := ghostUsersDue(ctx, tx, w.deps.jobsDB())
		return due.Now, err
	})
}

func ghostUsersJob(c *config.Config) Job {
	return Job{
		Kind: GhostUsers, Queue: GhostUsers, Schedule: string(c.GhostUsers.Schedule), Cron: c.GhostUsers.Schedule, MaxAttempts: 1,
		Args: map[string]string{}, Defaults: map[string]any{},
		Summary:       "deletes users and moves what they wrote to the ghost user",
		DeletionTable: ghostQueue,
		Databases:     []string{c.Jobs.Database},
		ArgsOf:        func(string) river.JobArgs { return MigrateRecordsToGhostUserArgs{} },
		Lane:          ghostUsersLane,
		LeaseKey:      func(string) string { return ghostUsersLease },
		Run:           runGhostUsers,
	}
}

const ghostUsersLease = "users/migrate_records_to_ghost_user_in_batches_worker"

func ghostUsersLane(deps Deps, db database.Database) *listen.Lane {
	key1, key2 := triggers.AwakeKey(db.Names.Jobs, GhostUsers)
	return &listen.Lane{
		Kind: GhostUsers, Database: db.Name,
		Key1: key1, Key2: key2,
		Tables: []string{db.Names.Render(`"public".` + ghostQueue)},
		Due: func(ctx context.Context, on listen.Querier, _ bool) (listen.Due, error) {
			return ghostUsersDue(ctx, on, db)
		},
		Work: func(ctx context.Context) (time.Duration, error) {
			if left := deps.Bindings.ghosts.wait(time.Now()); left > 0 {
				return left, nil
			}
			return workThroughRiver(ctx, deps, GhostUsers, MigrateRecordsToGhostUserArgs{})
		},
	}
}

// ghostUsersDue is the kind's one predicate: whether there is a user that it may take now, and in how long the next one falls
// due. Paused: not now.
func ghostUsersDue(ctx context.Context, on listen.Querier, db database.Database) (listen.Due, error) {
	const sql = "SELECT " + ghostuser.DueSQL + " AND NOT " + pausedSQL + ", " + ghostuser.NextDueSQL
	var due listen.Due
	var seconds float64
	if err := on.QueryRow(ctx, db.Names.Render(sql), GhostUsers).Scan(&due.Now, &seconds); err != nil {
		return listen.Due{}, fmt.Errorf("look for due users: %w", err)
	}
	due.In = max(0, time.Duration(seconds*float64(time.Second)))
	return due, nil
}

// ghostLists are the configured lists, as the domain takes them.
func ghostLists(c config.GhostUsers) ghostuser.Lists {
	var lists ghostuser.Lists
	for _, entry := range c.Move {
		moved := ghostuser.Move{Table: entry.Table, Columns: entry.Columns, Always: entry.Always}
		for _, condition := range entry.Conditions {
			moved.Conditions = append(moved.Conditions, ghostuser.Condition(condition))
		}
		lists.Move = append(lists.Move, moved)
	}
	for _, entry := range c.Delete {
		lists.Delete = append(lists.Delete, ghostuser.Columns{Table: entry.Table, Columns: entry.Columns, Event: entry.Tells()})
	}
	for _, entry := range c.Nullify {
		lists.Nullify = append(lists.Nullify, ghostuser.Columns{Table: entry.Table, Columns: entry.Columns})
	}
	return lists
}

// CheckGhostUsers binds the lists to the database, which names what does not fit at the place of the file where it stands.
func CheckGhostUsers(ctx context.Context, c *config.Config, db database.Database, on pgcatalog.Beginner) (*ghostuser.Plan, problem.List, error) {
	plan, found, err := ghostuser.Resolve(ctx, on, db.Names.Tracked, ghostLists(c.GhostUsers))
	if err != nil {
		return nil, nil, err
	}
	placed := make(problem.List, len(found))
	for i, p := range found {
		placed[i] = c.Problem(p.Key, p.Message, p.Fix)
		placed[i].Severity = p.Severity
	}
	return plan, placed, nil
}

// runGhostUsers runs one pass under the kind's lease.
func runGhostUsers(ctx context.Context, deps Deps, pass Pass) (jobrun.Report, error) {
	db := deps.jobsDB()
	if pass.Database != db.Name {
		return jobrun.Report{}, fmt.Errorf("run %s: users are deleted in the jobs database, which is %s", GhostUsers, db.Name)
	}
	spec := jobrun.Spec{
		Kind: GhostUsers, Database: db.Name, LeaseKey: ghostUsersLease, LeaseTTL: deps.Config.GhostUsers.MaxRuntime,
		Fences: []database.Database{db},
	}
	report, err := deps.Runner.Do(ctx, spec, func(ctx context.Context, granted *lease.Lease, progress jobrun.Progress) (jobrun.Result, error) {
		stats, err := passGhostUsers(ctx, deps, db, granted, progress)
		if stats == nil {
			return jobrun.Result{}, err
		}
		result := ghostResult(stats)
		result.Counts = append(result.Counts, ghostAlerts(ctx, deps.Logger.With("kind", GhostUsers, "database", db.Name), db, stats)...)
		return result, err
	})
	switch {
	case err == nil && report.Outcome != jobrun.Skipped:
		deps.Bindings.ghosts.end()
	case err != nil && ctx.Err() == nil:
		deps.Bindings.ghosts.begin(time.Now())
	}
	return report, err
}

// passGhostUsers runs the engine on one connection.
func passGhostUsers(
	ctx context.Context, deps Deps, db database.Database, granted *lease.Lease, progress jobrun.Progress,
) (*ghostuser.Stats, error) {
	conn, err := db.Pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to database %s: %w", db.Name, err)
	}
	defer conn.Release()
	var plan *ghostuser.Plan
	var problems problem.List
	if err := granted.During(ctx, func() (err error) {
		plan, problems, err = CheckGhostUsers(ctx, deps.Config, db, conn)
		return err
	}); err != nil {
		return nil, err
	}
	if err := deps.fits(ctx, GhostUsers, db, problems); err != nil {
		return nil, err
	}
	settings := deps.Config.GhostUsers
	session := &batch.Session{Conn: conn.Conn(), Names: db.Names, Fence: granted, Limits: deps.timeouts()}
	held := newThrottle(deps, GhostUsers, config.Adaptive, db, session, nil)
	hooks := held.hooks()
	log := deps.Logger.With("kind", GhostUsers, "database", db.Name)
	said := ""
	engine := ghostuser.Engine{
		Session: session, Plan: plan,
		Limits: ghostuser.Limits{Users: settings.Limit, Runtime: settings.MaxRuntime, RetryAfter: settings.RetryAfter},
		Sizes: ghostuser.Sizes{
			Move: settings.Batches.Move, Delete: settings.Batches.Delete, Nullify: settings.Batches.Nullify,
			Target: settings.Target, Duty: float64(settings.Duty) / 100,
		},
		Hold:    hooks.Hold,
		Blocker: func(ctx context.Context) string { return held.blockedBy(ctx, db.Name) },
		Progress: func(ctx context.Context, stats *ghostuser.Stats) {
			changed := stats.WaitingFor != said
			said = stats.WaitingFor
			progress(ctx, stats, changed)
		},
		Ended: func(ctx context.Context, item ghostuser.Item) {
			attributes := []any{
				"user_id", item.UserID, "hard_delete", item.HardDelete, "outcome", string(item.Outcome),
				"moved", item.Moved, "deleted", item.Deleted, "nullified", item.Nullified,
			}
			if item.Outcome == ghostuser.Failed {
				log.ErrorContext(ctx, "user_failed",
					append(attributes, "table", item.Table, "sqlstate", item.SQLState, "error", item.Message, "stack", item.Stack)...)
				return
			}
			log.InfoContext(ctx, "user_processed", attributes...)
		},
	}
	return engine.Run(ctx)
}

// ghostResult is the result of a pass for the history and the metrics.
func ghostResult(stats *ghostuser.Stats) jobrun.Result {
	result := jobrun.Result{
		Outcome: jobrun.Done, Stats: stats, Changed: stats.Changed(), Processed: stats.UsersProcessed, Failed: stats.UsersFailed,
	}
	switch {
	case stats.OverLimit:
		result.Outcome, result.Reason = jobrun.OverLimit, because("due users are left; the next run goes on at once", stats.Held)
	case stats.Interrupted:
		result.Outcome, result.Reason = jobrun.OverLimit, "asked to stop before everything was done"
	}
	done := stats.UsersProcessed + stats.UsersDropped + total(stats.Moved, stats.Deleted, stats.Nullified)
	result.Held = heldUp(done, stats.OverLimit || stats.Held != "", stats.Held, stats.Errors)
	for metric, rows := range map[string]map[string]int64{
		metrics.GhostMoved: stats.Moved, metrics.GhostDeleted: stats.Deleted, metrics.GhostNullified: stats.Nullified,
	} {
		for column, n := range rows {
			result.Counts = append(result.Counts, jobrun.Count{Metric: metric, Table: column, N: n})
		}
	}
	for metric, users := range map[string]int64{metrics.GhostUsersDestroyed: stats.UsersProcessed, metrics.GhostUsersFailed: stats.UsersFailed} {
		if users > 0 {
			result.Counts = append(result.Counts, jobrun.Count{Metric: metric, N: users})
		}
	}
	for _, e := range stats.Errors {
		result.Faults = append(result.Faults, jobrun.Fault{Table: e.Table, SQLState: e.SQLState, N: e.Count})
	}
	return result
}
