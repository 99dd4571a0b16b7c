package riverjobs

import (
	"context"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/groupdelete"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
)

// GroupDestroy is the kind of the job that takes one group down.
const GroupDestroy = "group_destroy"

// destroyAttempts is how often a destruction is tried, with River's exponential pauses: for some weeks.
const destroyAttempts = 25

// destroyWorkers is how many destructions one process works on at once: each keeps a connection, and each takes its share of
// the server's time.
const destroyWorkers = 2

// GroupDestroyArgs name the group, and on whose behalf its destruction was asked for. What counts when it begins is who has
// scheduled it then.
type GroupDestroyArgs struct {
	GroupID int64 `json:"group_id"`
	UserID  int64 `json:"user_id"`
}

// Kind is frozen: it stands in the rows of running installations.
func (GroupDestroyArgs) Kind() string { return GroupDestroy }

// InsertOpts make the job unique while one is waiting or running.
func (GroupDestroyArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: GroupDestroy, MaxAttempts: destroyAttempts, UniqueOpts: uniqueWhileUnfinished()}
}

// GroupDestroyWorker takes a group down in runs of less than a minute.
type GroupDestroyWorker struct {
	river.WorkerDefaults[GroupDestroyArgs]

	deps Deps
}

// Timeout is longer than a run and shorter than the time after which a job's worker is taken for dead.
func (*GroupDestroyWorker) Timeout(*river.Job[GroupDestroyArgs]) time.Duration {
	return groupdelete.LeaseTTL
}

// Work runs once. A lease that is taken is no error, a group that something stands in the way of is one.
func (w *GroupDestroyWorker) Work(ctx context.Context, job *river.Job[GroupDestroyArgs]) error {
	return workItem(ctx, w.deps, job, runGroupDestroy)
}

func groupDestroyJob(c *config.Config) Job {
	return Job{
		Kind: GroupDestroy, Queue: GroupDestroy, MaxAttempts: destroyAttempts, MaxWorkers: destroyWorkers,
		Args:          map[string]string{"group_id": migrate.Bigint, "user_id": migrate.Bigint},
		Defaults:      map[string]any{},
		Row:           migrate.Row{Table: "groups", Column: "id", Argument: "group_id"},
		Summary:       "takes a group down in small steps: projects, sub-groups, memberships, the group",
		DeletionTable: groupSchedules,
		Databases:     []string{c.Jobs.Database},
		Run:           foreground(runGroupDestroy),
	}
}

// runGroupDestroy runs once under the lease of the group.
func runGroupDestroy(ctx context.Context, deps Deps, args GroupDestroyArgs) (jobrun.Report, error) {
	db := deps.jobsDB()
	spec := jobrun.Spec{
		Kind: GroupDestroy, Database: db.Name, LeaseKey: groupdelete.LeaseKey(args.GroupID), LeaseTTL: groupdelete.LeaseTTL, Shared: true,
		Fences: []database.Database{db},
	}
	return deps.Runner.Do(ctx, spec, func(ctx context.Context, granted *lease.Lease, progress jobrun.Progress) (jobrun.Result, error) {
		stats, err := passGroupDestroy(ctx, deps, db, granted, args, progress)
		if stats == nil {
			return jobrun.Result{}, err
		}
		if err == nil && stats.Outcome == groupdelete.Stuck {
			err = fmt.Errorf("destroy group %d: %s", args.GroupID, stats.Reason)
		}
		return destroyResult(stats), err
	})
}

// passGroupDestroy runs the engine on one connection.
func passGroupDestroy(
	ctx context.Context, deps Deps, db database.Database, granted *lease.Lease, args GroupDestroyArgs, progress jobrun.Progress,
) (*groupdelete.Stats, error) {
	conn, err := db.Pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to database %s: %w", db.Name, err)
	}
	defer conn.Release()
	plan, problems, err := groupdelete.Resolve(ctx, conn, db.Names, deps.Config.GhostUsers.Enabled)
	if err != nil {
		return nil, err
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	settings := deps.Config.AdjournedGroups
	session := &batch.Session{Conn: conn.Conn(), Names: db.Names, Fence: granted, Limits: deps.timeouts()}
	held := newThrottle(deps, GroupDestroy, config.Adaptive, db, session, nil)
	said, step := "", ""
	engine := groupdelete.Engine{
		Session: session, Plan: plan, GroupID: args.GroupID, Leases: deps.Runner.Leases, Database: db,
		Sizes:   groupdelete.Sizes{Target: settings.Target, Duty: float64(settings.Duty) / 100},
		Hold:    held.hooks().Hold,
		Blocker: func(ctx context.Context) string { return held.blockedBy(ctx, db.Name) },
		Progress: func(ctx context.Context, stats *groupdelete.Stats) {
			changed := stats.WaitingFor != said || stats.Step != step
			said, step = stats.WaitingFor, stats.Step
			progress(ctx, stats, changed)
		},
	}
	stats, err := engine.Run(ctx)
	log := deps.Logger.With("kind", GroupDestroy, "database", db.Name, "group_id", args.GroupID, "user_id", args.UserID)
	attributes := []any{"outcome", string(stats.Outcome), "groups", stats.Groups, "projects", stats.Projects, "done", stats.Done, "total", stats.Total}
	switch {
	case err != nil: // It is logged as that of the whole run.
	case stats.Outcome == groupdelete.Stuck:
		log.ErrorContext(ctx, "group_stuck", append(attributes, "error", stats.Reason)...)
	default:
		log.InfoContext(ctx, "group_processed", append(attributes, "reason", stats.Reason)...)
	}
	return stats, err
}

// destroyResult is what the history and the metrics have of a run.
func destroyResult(stats *groupdelete.Stats) jobrun.Result {
	result := jobrun.Result{Outcome: jobrun.Done, Reason: stats.Reason, Stats: stats, Changed: stats.Changed(), Processed: stats.Groups}
	switch stats.Outcome {
	case groupdelete.Unfinished:
		result.Outcome, result.Reason = jobrun.OverLimit, because("the group is not gone yet; the next run goes on at once", stats.Reason)
	case groupdelete.Stuck:
		result.Failed = 1
	case groupdelete.Destroyed, groupdelete.Gone, groupdelete.Kept:
	}
	left := stats.Outcome == groupdelete.Unfinished && !stats.Interrupted
	result.Held = heldUp(stats.Bots+total(stats.Deleted, stats.Nullified), left, stats.Reason, stats.Errors)
	for metric, n := range map[string]int64{
		metrics.GroupsDestroyed: stats.Groups, metrics.ProjectsDestroyed: stats.Projects, metrics.GroupDestroysFailed: result.Failed,
	} {
		if n > 0 {
			result.Counts = append(result.Counts, jobrun.Count{Metric: metric, N: n})
		}
	}
	for table, n := range stats.Deleted {
		result.Counts = append(result.Counts, jobrun.Count{Metric: metrics.GroupDeleted, Table: table, N: n})
	}
	for _, e := range stats.Errors {
		result.Faults = append(result.Faults, jobrun.Fault{Table: e.Table, SQLState: e.SQLState, N: e.Count})
	}
	return result
}
