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
	"sexton/internal/groupschedule"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/listen"
	"sexton/internal/metrics"
	"sexton/triggers"
)

// AdjournedGroupDeletion is the kind of the job that decides about groups whose period is over: it has them destroyed, or
// restores them.
const AdjournedGroupDeletion = "adjourned_group_deletion"

const (
	// groupSchedules is the table in which groups wait for it.
	groupSchedules = "group_deletion_schedules"

	adjournedGroupsLease = "adjourned_group_deletion_worker"
	adjournedGroupsTTL   = time.Minute
	adjournedAttempts    = 25
)

// markedEarlier is the condition for rows that wake the job, in groups and in their schedules. A mark of today makes nothing
// due yet: there are many of them, and a timer is set for their midnight. A period that gets shorter wakes no worker either:
// the lane finds out when it looks again, in 10 s at most.
const markedEarlier = "NEW.marked_for_deletion_on < (pg_catalog.now() AT TIME ZONE 'UTC')::pg_catalog.date"

// AdjournedGroupDeletionArgs are none: the job takes whatever is due.
type AdjournedGroupDeletionArgs struct{}

// Kind is frozen: it stands in the rows of running installations.
func (AdjournedGroupDeletionArgs) Kind() string { return AdjournedGroupDeletion }

// InsertOpts make the job unique while one is waiting or running. What goes wrong with a single group does not fail it; what
// does is tried again with growing pauses.
func (AdjournedGroupDeletionArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: AdjournedGroupDeletion, MaxAttempts: adjournedAttempts, UniqueOpts: uniqueWhileUnfinished()}
}

// AdjournedGroupDeletionWorker runs one pass per job.
type AdjournedGroupDeletionWorker struct {
	river.WorkerDefaults[AdjournedGroupDeletionArgs]

	deps Deps
}

// Timeout is the length of the lease, which no pass may outlive.
func (*AdjournedGroupDeletionWorker) Timeout(*river.Job[AdjournedGroupDeletionArgs]) time.Duration {
	return adjournedGroupsTTL
}

// Work runs one pass. A lease that is taken is no error.
func (w *AdjournedGroupDeletionWorker) Work(ctx context.Context, job *river.Job[AdjournedGroupDeletionArgs]) error {
	return workPass(ctx, w.deps, job, runAdjournedGroups, w.deps.jobsDB().Name, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		due, err := adjournedGroupsDue(ctx, tx, w.deps.jobsDB())
		return due.Now, err
	})
}

func adjournedGroupsJob(c *config.Config) Job {
	return Job{
		Kind: AdjournedGroupDeletion, Queue: AdjournedGroupDeletion,
		Schedule: string(c.AdjournedGroups.Schedule), Cron: c.AdjournedGroups.Schedule, MaxAttempts: adjournedAttempts,
		Args: map[string]string{}, Defaults: map[string]any{},
		Summary:       "has groups destroyed whose deletion was asked for and whose period is over",
		DeletionTable: groupSchedules,
		Wakes:         []triggers.Wake{{Table: groupSchedules, Due: markedEarlier}, {Table: "groups", Due: markedEarlier}},
		Databases:     []string{c.Jobs.Database},
		ArgsOf:        func(string) river.JobArgs { return AdjournedGroupDeletionArgs{} },
		Lane:          adjournedGroupsLane,
		LeaseKey:      func(string) string { return adjournedGroupsLease },
		Run:           runAdjournedGroups,
	}
}

func adjournedGroupsLane(deps Deps, db database.Database) *listen.Lane {
	key1, key2 := triggers.AwakeKey(db.Names.Jobs, AdjournedGroupDeletion)
	return &listen.Lane{
		Kind: AdjournedGroupDeletion, Database: db.Name,
		Key1: key1, Key2: key2,
		Tables: []string{db.Names.Render(`"public".` + groupSchedules), db.Names.Render(`"public".groups`)},
		Due: func(ctx context.Context, on listen.Querier, _ bool) (listen.Due, error) {
			return adjournedGroupsDue(ctx, on, db)
		},
		Work: func(ctx context.Context) (time.Duration, error) {
			return workThroughRiver(ctx, deps, AdjournedGroupDeletion, AdjournedGroupDeletionArgs{})
		},
	}
}

// adjournedGroupsDue is the kind's one predicate: whether there is a group that it may take now, and in how long the next one
// falls due. Not while it is paused, nor while a failed pass waits for its next attempt: to look would cut that short.
func adjournedGroupsDue(ctx context.Context, on listen.Querier, db database.Database) (listen.Due, error) {
	const sql = "SELECT " + groupschedule.DueSQL + " AND NOT " + pausedSQL + ` AND NOT EXISTS (
		SELECT FROM "sexton".river_job AS job WHERE job.kind = $1 AND job.state = 'retryable' AND job.scheduled_at > pg_catalog.statement_timestamp()
	), ` + groupschedule.NextDueSQL
	var due listen.Due
	var seconds float64
	if err := on.QueryRow(ctx, db.Names.Render(sql), AdjournedGroupDeletion).Scan(&due.Now, &seconds); err != nil {
		return listen.Due{}, fmt.Errorf("look for due groups: %w", err)
	}
	due.In = max(0, time.Duration(seconds*float64(time.Second)))
	return due, nil
}

// runAdjournedGroups runs one pass under the kind's lease.
func runAdjournedGroups(ctx context.Context, deps Deps, pass Pass) (jobrun.Report, error) {
	db := deps.jobsDB()
	if pass.Database != db.Name {
		return jobrun.Report{}, fmt.Errorf("run %s: groups are deleted in the jobs database, which is %s", AdjournedGroupDeletion, db.Name)
	}
	spec := jobrun.Spec{
		Kind: AdjournedGroupDeletion, Database: db.Name, LeaseKey: adjournedGroupsLease, LeaseTTL: adjournedGroupsTTL,
		Fences: []database.Database{db},
	}
	return deps.Runner.Do(ctx, spec, func(ctx context.Context, granted *lease.Lease, progress jobrun.Progress) (jobrun.Result, error) {
		stats, err := passAdjournedGroups(ctx, deps, db, granted, progress)
		if stats == nil {
			return jobrun.Result{}, err
		}
		return adjournedResult(stats), err
	})
}

// passAdjournedGroups runs the engine on one connection.
func passAdjournedGroups(
	ctx context.Context, deps Deps, db database.Database, granted *lease.Lease, progress jobrun.Progress,
) (*groupschedule.Stats, error) {
	conn, err := db.Pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to database %s: %w", db.Name, err)
	}
	defer conn.Release()
	log := deps.Logger.With("kind", AdjournedGroupDeletion, "database", db.Name)
	limits := deps.timeouts()
	limits.Durable = true // A group that was reported as restored must be so after a crash of the server, too.
	engine := groupschedule.Engine{
		Session: &batch.Session{Conn: conn.Conn(), Names: db.Names, Fence: granted, Limits: limits},
		Page:    deps.Config.AdjournedGroups.BatchSize, Spacing: deps.Config.AdjournedGroups.Spacing,
		Progress: func(ctx context.Context, stats *groupschedule.Stats) { progress(ctx, stats, false) },
		Decided: func(ctx context.Context, d groupschedule.Decision) {
			item := log.With("group_id", d.GroupID, "namespace", d.Path, "user_id", d.UserID)
			switch d.Outcome {
			case groupschedule.Enqueued:
				item.InfoContext(ctx, "group_enqueued", "destroy_at", d.RunAt.UTC())
			case groupschedule.Restored:
				item.InfoContext(ctx, "group_restored", "reason", d.Reason)
			case groupschedule.Failed:
				item.ErrorContext(ctx, "group_failed", "sqlstate", d.Fault.SQLState, "error", d.Fault.Message, "stack", d.Fault.Stack)
			default:
				item.DebugContext(ctx, "group_passed_over", "outcome", string(d.Outcome))
			}
		},
	}
	stats, err := engine.Run(ctx)
	if err == nil && stats.Cutoff == nil {
		log.WarnContext(ctx, "no group is due, as application_settings.deletion_adjourned_period is not set to 1 to 90 days")
	}
	return stats, err
}

// adjournedResult is the result of a pass for the history and the metrics.
func adjournedResult(stats *groupschedule.Stats) jobrun.Result {
	result := jobrun.Result{
		Outcome: jobrun.Done, Stats: stats, Changed: stats.Changed(), Processed: stats.GroupsEnqueued + stats.GroupsRestored, Failed: stats.GroupsFailed,
	}
	switch {
	case stats.Cutoff == nil:
		result.Outcome, result.Reason = jobrun.Skipped, "application_settings.deletion_adjourned_period is not set to 1 to 90 days"
	case stats.OverLimit:
		result.Outcome, result.Reason = jobrun.OverLimit, "due groups are left; the next run goes on at once"
	case stats.Interrupted:
		result.Outcome, result.Reason = jobrun.OverLimit, "asked to stop before everything was done"
	}
	for metric, groups := range map[string]int64{
		metrics.GroupsEnqueued: stats.GroupsEnqueued, metrics.GroupsRestored: stats.GroupsRestored, metrics.GroupsFailed: stats.GroupsFailed,
	} {
		if groups > 0 {
			result.Counts = append(result.Counts, jobrun.Count{Metric: metric, N: groups})
		}
	}
	for _, e := range stats.Errors {
		result.Faults = append(result.Faults, jobrun.Fault{Table: e.Table, SQLState: e.SQLState, N: e.Count})
	}
	return result
}
