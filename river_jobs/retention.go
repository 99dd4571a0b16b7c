package riverjobs

import (
	"context"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/jobrun"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
	"sexton/internal/retention"
	"sexton/triggers"
)

// RetentionCleanup is the kind of the job that deletes expired rows.
const RetentionCleanup = "retention_cleanup"

const (
	retentionTTL     = time.Minute
	retentionRuntime = 50 * time.Second
)

// RetentionCleanupArgs contains the name of the database.
type RetentionCleanupArgs struct {
	Database string `json:"database" river:"unique"`
}

// Kind returns the name of the kind, which is stored in jobs and must not change.
func (RetentionCleanupArgs) Kind() string { return RetentionCleanup }

// InsertOpts returns options that make the job unique per database until it finishes. The
// job has one attempt. The next tick is the retry.
func (RetentionCleanupArgs) InsertOpts() river.InsertOpts { return uniqueOpts(RetentionCleanup, 1) }

func retentionCleanup(c *config.Config) kind[RetentionCleanupArgs] {
	return kind[RetentionCleanupArgs]{
		Job: Job{
			Cron: c.Retention.Schedule, Summary: "deletes rows that have expired by a rule",
			Args: map[string]string{"database": migrate.Text}, Databases: c.RetentionDatabases(),
			Defaults:      map[string]any{"database": c.RetentionDatabases()[0]},
			DeletionTable: retention.Table,
			Wakes:         []triggers.Wake{{Schema: pgcatalog.Schema, Table: retention.Table, Due: "NEW.due"}},
			Check: func(ctx context.Context, c *config.Config, jobs database.Database) (problem.List, error) {
				_, problems, err := CheckRetention(ctx, c, jobs, jobs.Pool)
				return problems, err
			},
			entries: func([]definitions.Definition) []string { return retentionEntries(c) },
		},
		argsOf: func(database string) RetentionCleanupArgs { return RetentionCleanupArgs{Database: database} },
		bounds: func(args RetentionCleanupArgs) bounds {
			return bounds{
				database: args.Database, lease: "retention/cleanup_worker:" + args.Database, ttl: retentionTTL,
				timeout: retentionTTL + extraTime(c) + slowNetwork,
			}
		},
		pass: passRetention,
		due:  dueBy[RetentionCleanupArgs]("retention rules", retention.DueSQL, "0::pg_catalog.float8"),
	}
}

// retentionRules converts the configured rules to the types of the package retention.
func retentionRules(c *config.Config) []retention.Rule {
	return render.Each(c.Retention.Rules, func(r config.RetentionRule) retention.Rule {
		return retention.Rule{
			Database: r.Database, Table: r.Table, Column: r.Column, Keep: time.Duration(r.Keep), Unit: string(r.Unit),
			Conditions: r.Conditions,
			Event:      r.Event != nil, EventColumns: r.Event, DryRun: r.DryRun,
		}
	})
}

// retentionEntries returns the rules, one line each.
func retentionEntries(c *config.Config) []string {
	return render.Each(c.Retention.Rules, func(r config.RetentionRule) string {
		entry := fmt.Sprintf("%s keep %s%s%s dry_run=%t", listEntry(c, "retention", r.Database, r.Table, r.Column),
			time.Duration(r.Keep), r.Unit,
			conditionsEntry(r.Conditions), r.DryRun)
		if r.Event != nil {
			entry += " event" + eventColumns(r.Event)
		}
		return entry
	})
}

// CheckRetention binds the rules to the database. The returned problems have positions in
// the file.
func CheckRetention(ctx context.Context, c *config.Config, db database.Database,
	on pgcatalog.Beginner,
) (*retention.Plan, problem.List, error) {
	plan, found, err := retention.Resolve(ctx, on, db.Name, db.Names.Tracked, retentionRules(c))
	if err != nil {
		return nil, nil, err
	}
	return plan, Placed(c, found), nil
}

func passRetention(ctx context.Context, p *pass, _ RetentionCleanupArgs) (jobrun.Result, error) {
	stats, err := runRetention(ctx, p)
	if stats == nil {
		return jobrun.Result{}, err
	}
	result := jobrun.Result{
		Stats: stats, Changed: stats.Changed(), Faults: stats.Errors, Processed: stats.Rows(), Waited: stats.Held,
		Over: stats.OverLimit, Left: "due rows are left", Stopped: stats.Interrupted, Idle: stats.Rows() == 0,
		Counts: jobrun.Counts{
			metrics.RetentionDeleted:       stats.Deleted,
			metrics.RetentionPartlyCleared: {"": stats.PartlyCleared},
		},
	}
	for _, counts := range stats.Errors {
		result.Failed += counts.Count
	}
	// A pass with due rows left does not fail, so that the next pass begins immediately.
	if err == nil && stats.Failed > 0 && !stats.OverLimit && !stats.Interrupted {
		err = fmt.Errorf("%d of the rules failed: %s", stats.Failed, stats.Failure)
	}
	return result, err
}

func runRetention(ctx context.Context, p *pass) (*retention.Stats, error) {
	session, release, err := p.session(ctx, false)
	if err != nil {
		return nil, err
	}
	defer release()
	session.Kept = p.Config.LooseForeignKeys.Undo.On()
	plan, err := bindUnderLease(ctx, p, RetentionCleanup, func() (*retention.Plan, problem.List, error) {
		return CheckRetention(ctx, p.Config, p.db, session.Conn)
	})
	if err != nil {
		return nil, err
	}
	settings := p.Config.Retention
	engine := retention.Engine{
		Session: session, Plan: plan, Runtime: retentionRuntime, Target: settings.Target, Duty: settings.Duty.Fixed(),
		Throttle: p.throttle(session, settings.Duty),
		Progress: progressOn(p, func(stats *retention.Stats) string { return stats.WaitingFor }),
		PartlyCleared: func(ctx context.Context, rule, table, row string) {
			p.log.WarnContext(ctx, "row_partly_cleared", "rule", rule, "table", table, "row", row)
		},
	}
	return engine.Run(ctx)
}
