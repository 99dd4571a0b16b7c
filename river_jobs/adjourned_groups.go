package riverjobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/drain/dml"
	"sexton/internal/groupdelete"
	"sexton/internal/groupschedule"
	"sexton/internal/jobrun"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/triggers"
)

// AdjournedGroupDeletion is the kind of the job that inserts a group_destroy job for each
// group whose period has expired, or restores the group.
const AdjournedGroupDeletion = "adjourned_group_deletion"

// markedEarlier is the condition under which a row of groups or schedules wakes the job.
// A mark of today makes no group due before midnight, when a timer wakes the job. A
// shortened period wakes no worker. The subscription finds its groups with its next
// query, within 10 s.
const markedEarlier = "NEW.%s < (pg_catalog.now() AT TIME ZONE 'UTC')::pg_catalog.date"

// groupWakes returns the tables whose marks wake the job.
func groupWakes(of config.Groups) []triggers.Wake {
	if of.Table != "" {
		return []triggers.Wake{{Table: of.Table, Due: fmt.Sprintf(markedEarlier, pgcatalog.Quote(of.MarkedOn))}}
	}
	due := fmt.Sprintf(markedEarlier, "marked_for_deletion_on")
	return []triggers.Wake{{Table: groupschedule.Table, Due: due}, {Table: "groups", Due: due}}
}

// AdjournedGroupDeletionArgs has no fields, because the job processes all due groups.
type AdjournedGroupDeletionArgs struct{}

// Kind returns the name of the kind, which is stored in jobs and must not change.
func (AdjournedGroupDeletionArgs) Kind() string { return AdjournedGroupDeletion }

// InsertOpts returns options that make the job unique until it finishes. Errors of single
// groups do not fail the job. After other errors River retries it with increasing pauses.
func (AdjournedGroupDeletionArgs) InsertOpts() river.InsertOpts {
	return uniqueOpts(AdjournedGroupDeletion, 25)
}

// longestRetry limits River's pauses between failed passes. The pauses would grow to
// days, and the waiting job prevents the jobs of ticks, because jobs are unique.
const longestRetry = time.Hour

func adjournedGroups(c *config.Config) kind[AdjournedGroupDeletionArgs] {
	return kind[AdjournedGroupDeletionArgs]{
		Job: Job{
			Cron:          c.AdjournedGroups.Schedule,
			Summary:       "inserts jobs that delete the groups whose period has ended",
			DeletionTable: groupschedule.Table,
			Wakes:         groupWakes(c.AdjournedGroups.Groups),
			Check:         checkGroups,
		},
		bounds: func(AdjournedGroupDeletionArgs) bounds {
			return bounds{lease: "adjourned_group_deletion_worker", ttl: time.Minute, timeout: time.Minute + extraTime(c)}
		},
		pass: passAdjournedGroups,
		due:  dueBy[AdjournedGroupDeletionArgs]("groups", groupschedule.DueSQL(), groupschedule.NextDueSQL()),
		retryDelay: func(ctx context.Context, _ Deps, db database.Database) (time.Duration, error) {
			return untilRetried(ctx, db, AdjournedGroupDeletion, longestRetry)
		},
	}
}

func passAdjournedGroups(ctx context.Context, p *pass, _ AdjournedGroupDeletionArgs) (jobrun.Result, error) {
	// The session is durable, so that a crash of the server cannot revert a restoration.
	session, release, err := p.session(ctx, true)
	if err != nil {
		return jobrun.Result{}, err
	}
	defer release()
	engine := groupschedule.Engine{
		Blocker: p.throttle(session, config.Auto).Blocker,
		Session: session, Page: p.Config.AdjournedGroups.BatchSize, Spacing: p.Config.AdjournedGroups.Spacing,
		Progress: func(ctx context.Context, stats *groupschedule.Stats) { p.progress(ctx, stats, false) },
		Decided: func(ctx context.Context, d groupschedule.Decision) {
			item := p.log.With("group_id", d.GroupID, "namespace", d.Path, "user_id", d.UserID)
			switch d.Outcome {
			case groupschedule.Enqueued:
				item.InfoContext(ctx, "group_enqueued", "destroy_at", d.RunAt.UTC())
			case groupschedule.Restored:
				item.InfoContext(ctx, "group_restored", "reason", d.Reason)
			case groupschedule.Failed:
				item.ErrorContext(ctx, "group_failed", "sqlstate", d.Fault.SQLState, "error", d.Fault.Message, "stack",
					d.Fault.Stack)
			default:
				item.DebugContext(ctx, "group_passed_over", "outcome", string(d.Outcome))
			}
		},
	}
	stats, err := engine.Run(ctx)
	const noPeriod = "application_settings.deletion_adjourned_period is not set to 1 to 90 days"
	result := jobrun.Result{
		Stats: stats, Changed: stats.Changed(), Faults: stats.Errors,
		Processed: stats.GroupsEnqueued + stats.GroupsRestored, Failed: stats.GroupsFailed,
		Over: stats.OverLimit, Left: "due groups are left; the next run continues immediately", Stopped: stats.Interrupted,
		Counts: jobrun.Counts{
			metrics.GroupsEnqueued: {"": stats.GroupsEnqueued}, metrics.GroupsRestored: {"": stats.GroupsRestored},
			metrics.GroupsFailed: {"": stats.GroupsFailed},
		},
	}
	if stats.Cutoff == nil {
		result.Skipped = noPeriod
		if err == nil {
			p.log.WarnContext(ctx, "no_group_due", "reason", noPeriod)
		}
	}
	return result, err
}

// GroupDestroy is the kind of the job that deletes one group.
const GroupDestroy = "group_destroy"

// MostGroups is the number of groups that one process deletes in parallel.
const MostGroups = 2

// GroupDestroyArgs contains the IDs of the group and of the user who requested its
// deletion. When the job begins, it checks the user who scheduled the deletion.
type GroupDestroyArgs struct {
	GroupID dml.ID `json:"group_id"`
	UserID  dml.ID `json:"user_id"`
}

// GroupsOf returns the configured table of groups.
func GroupsOf(c *config.Config) groupdelete.Groups {
	of := c.AdjournedGroups.Groups
	if of.Table == "" {
		return groupdelete.Groups{}
	}
	groups := groupdelete.Groups{Table: of.Table, Key: of.Key, Parent: of.Parent}
	if len(c.AdjournedGroups.Rename) > 0 {
		groups.Path = c.AdjournedGroups.Rename[0]
	}
	return groups
}

// Kind returns the name of the kind, which is stored in jobs and must not change.
func (GroupDestroyArgs) Kind() string { return GroupDestroy }

// InsertOpts returns options that make the job unique until it finishes. River's pauses
// spread its attempts over some weeks.
func (GroupDestroyArgs) InsertOpts() river.InsertOpts { return uniqueOpts(GroupDestroy, 25) }

func groupDestroy(c *config.Config) kind[GroupDestroyArgs] {
	table, key, id := cmp.Or(c.AdjournedGroups.Groups.Table, "groups"), c.AdjournedGroups.Groups.Key, migrate.Bigint
	var defaults map[string]any
	if c.AdjournedGroups.Groups.Table != "" {
		id, defaults = migrate.Key, map[string]any{"user_id": ""}
	}
	return kind[GroupDestroyArgs]{
		Job: Job{
			MaxWorkers:    MostGroups,
			Args:          map[string]string{"group_id": id, "user_id": id},
			Defaults:      defaults,
			Row:           migrate.Row{Table: table, Column: key, Argument: "group_id"},
			Summary:       "deletes one group in small steps: projects, sub-groups, memberships, the group",
			DeletionTable: groupschedule.Table,
		},
		// The timeout is longer than a pass, and shorter than RescueStuckJobsAfter.
		bounds: func(args GroupDestroyArgs) bounds {
			return bounds{
				lease: groupdelete.LeaseKey(args.GroupID), ttl: groupdelete.LeaseTTL,
				timeout: groupdelete.LeaseTTL + extraTime(c),
			}
		},
		pass: passGroupDestroy,
	}
}

// passGroupDestroy runs one pass under the lease of the group. It returns an error if
// another row prevents the deletion.
func passGroupDestroy(ctx context.Context, p *pass, args GroupDestroyArgs) (jobrun.Result, error) {
	stats, err := destroyGroup(ctx, p, args)
	if stats == nil {
		return jobrun.Result{}, err
	}
	if err == nil && stats.Outcome == groupdelete.Stuck {
		// destroyGroup has logged group_stuck.
		err = jobrun.Logged(fmt.Errorf("destroy group %s: %s", args.GroupID, stats.Reason))
	}
	return groupResult(stats), err
}

// groupResult converts the statistics to the result of a pass.
func groupResult(stats *groupdelete.Stats) jobrun.Result {
	failed := int64(0)
	if stats.Outcome == groupdelete.Stuck {
		failed = 1
	}
	result := jobrun.Result{
		Stats: stats, Changed: stats.Changed(), Faults: stats.Errors, Latency: stats.Latency,
		Processed: stats.Groups, Failed: failed, Reason: stats.Reason,
		Over: stats.Outcome == groupdelete.Unfinished, Left: "the group is not deleted yet; the next run continues immediately",
		Stopped: stats.Interrupted, Idle: stats.Bots == 0 && len(stats.Deleted)+len(stats.Nullified) == 0,
		Counts: jobrun.Counts{
			metrics.GroupsDestroyed: {"": stats.Groups}, metrics.ProjectsDestroyed: {"": stats.Projects},
			metrics.GroupDestroysFailed: {"": failed}, metrics.GroupDeleted: stats.Deleted,
		},
	}
	if !stats.Over() {
		result.Waited = stats.Reason
	}
	return result
}

// dueAt returns the time at which the period of a job's group expired. For an immediate
// deletion it returns the time at which the job was created.
func dueAt(job *rivertype.JobRow) time.Time {
	var metadata struct {
		DueAt time.Time `json:"due_at"`
	}
	if json.Unmarshal(job.Metadata, &metadata) != nil || metadata.DueAt.IsZero() {
		return job.CreatedAt
	}
	return metadata.DueAt
}

// destroyGroup runs the deletion engine on the group.
func destroyGroup(ctx context.Context, p *pass, args GroupDestroyArgs) (*groupdelete.Stats, error) {
	session, release, err := p.session(ctx, false)
	if err != nil {
		return nil, err
	}
	defer release()
	plan, problems, err := groupdelete.Resolve(ctx, session.Conn, p.db.Names, GroupsOf(p.Config),
		p.Config.Has(migrate.GhostUsers))
	if err == nil {
		err = problems.Err()
	}
	if err != nil {
		return nil, err
	}
	settings := p.Config.AdjournedGroups
	engine := groupdelete.Engine{
		Session: session, Plan: plan, GroupID: args.GroupID, Leases: p.Runner.Leases, Database: p.db,
		Runtime:  groupdelete.DefaultRuntime,
		Sizes:    groupdelete.Sizes{Target: settings.Target, Duty: settings.Duty.Fixed()},
		Throttle: p.throttle(session, settings.Duty),
		Progress: progressOn(p, func(stats *groupdelete.Stats) string { return stats.WaitingFor + "\x00" + stats.Step }),
	}
	stats, err := engine.Run(ctx)
	if stats.Outcome == groupdelete.Destroyed && p.job != nil {
		stats.Latency.Add(time.Since(dueAt(p.job)))
	}
	log := p.log.With("group_id", args.GroupID, "user_id", args.UserID)
	attributes := []any{
		"outcome", string(stats.Outcome), "groups", stats.Groups, "projects", stats.Projects, "done",
		stats.Done, "total", stats.Total,
	}
	switch {
	case err != nil: // jobrun logs the error.
	case stats.Outcome == groupdelete.Stuck:
		log.ErrorContext(ctx, "group_stuck", append(attributes, "error", stats.Reason)...)
	default:
		log.InfoContext(ctx, "group_processed", append(attributes, "reason", stats.Reason)...)
	}
	return stats, err
}
