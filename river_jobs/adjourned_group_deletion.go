package riverjobs

import (
	"context"
	"time"

	"github.com/riverqueue/river"

	"sexton/internal/config"
	"sexton/internal/groupschedule"
	"sexton/internal/jobrun"
	"sexton/internal/metrics"
	"sexton/triggers"
)

// AdjournedGroupDeletion is the kind of the job that decides about groups whose period is over: it has them destroyed, or
// restores them.
const AdjournedGroupDeletion = "adjourned_group_deletion"

// groupSchedules is the table in which groups wait for it.
const groupSchedules = "group_deletion_schedules"

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
	return once(AdjournedGroupDeletion, 25)
}

// retriedSQL reports whether a failed pass waits for its next attempt: a lane that took what is due would cut that short.
const retriedSQL = `EXISTS (
	SELECT FROM "sexton".river_job AS job
	WHERE job.queue = $1 AND job.kind = $1 AND job.state = 'retryable' AND job.scheduled_at > pg_catalog.statement_timestamp()
)`

func adjournedGroups(c *config.Config) kind[AdjournedGroupDeletionArgs] {
	return kind[AdjournedGroupDeletionArgs]{
		Job: Job{
			Cron:          c.AdjournedGroups.Schedule,
			Summary:       "has groups destroyed whose deletion was asked for and whose period is over",
			DeletionTable: groupSchedules,
			Wakes:         []triggers.Wake{{Table: groupSchedules, Due: markedEarlier}, {Table: "groups", Due: markedEarlier}},
		},
		bounds: func(AdjournedGroupDeletionArgs) bounds {
			return bounds{lease: "adjourned_group_deletion_worker", ttl: time.Minute, timeout: time.Minute}
		},
		pass: passAdjournedGroups,
		due:  dueBy[AdjournedGroupDeletionArgs]("groups", groupschedule.DueSQL()+" AND NOT "+retriedSQL, groupschedule.NextDueSQL()),
	}
}

func passAdjournedGroups(ctx context.Context, p *pass, _ AdjournedGroupDeletionArgs) (jobrun.Result, error) {
	session, release, err := p.session(ctx, true) // A group that was reported as restored must be so after a crash of the server, too.
	if err != nil {
		return jobrun.Result{}, err
	}
	defer release()
	engine := groupschedule.Engine{
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
				item.ErrorContext(ctx, "group_failed", "sqlstate", d.Fault.SQLState, "error", d.Fault.Message, "stack", d.Fault.Stack)
			default:
				item.DebugContext(ctx, "group_passed_over", "outcome", string(d.Outcome))
			}
		},
	}
	stats, err := engine.Run(ctx)
	if err == nil && stats.Cutoff == nil {
		p.log.WarnContext(ctx, "no group is due, as application_settings.deletion_adjourned_period is not set to 1 to 90 days")
	}
	return adjournedResult(stats), err
}

// adjournedResult is the result of a pass for the history and the metrics.
func adjournedResult(stats *groupschedule.Stats) jobrun.Result {
	result := jobrun.Result{
		Outcome: jobrun.Done, Stats: stats, Changed: stats.Changed(), Processed: stats.GroupsEnqueued + stats.GroupsRestored, Failed: stats.GroupsFailed,
		Faults: stats.Errors,
	}
	cutShort(&result, stats.OverLimit, stats.Interrupted, "due groups are left; the next run goes on at once")
	if stats.Cutoff == nil {
		result.Outcome, result.Reason = jobrun.Skipped, "application_settings.deletion_adjourned_period is not set to 1 to 90 days"
	}
	result.Counts = counted(map[string]int64{
		metrics.GroupsEnqueued: stats.GroupsEnqueued, metrics.GroupsRestored: stats.GroupsRestored, metrics.GroupsFailed: stats.GroupsFailed,
	}, nil)
	return result
}
