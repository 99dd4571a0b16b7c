package riverjobs

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/extdiff"
	"sexton/internal/ghostuser"
	"sexton/internal/groupschedule"
	"sexton/internal/placeholder"
)

// plannedCap is where the counts of a plan stop.
const plannedCap = 10_000

// Planned foresees the work of a kind. Counts stop at 10,000.
type Planned struct {
	// Due counts the rows that a pass may take now, by the predicate that wakes it; for kinds whose jobs another one inserts, the
	// jobs whose time has come. Capped tells that there are more, or may be.
	Due    int64 `json:"due"`
	Capped bool  `json:"due_capped"`
	// PerRun is how many of them one pass takes at most; 0 where only its time bounds it.
	PerRun int `json:"per_run,omitempty"`
	// RemovalsDue counts objects that the pass would remove from the store.
	RemovalsDue int64 `json:"removals_due,omitempty"`
	// NextDueAt is the time when the next one falls due that is not yet; nil where none does.
	NextDueAt *time.Time `json:"next_due_at"`
}

// Plan counts what a kind but the loose foreign keys would do now. It only reads.
func Plan(ctx context.Context, on dbsqlc.DBTX, c *config.Config, db database.Database, kind string) (Planned, error) {
	var planned Planned
	var seconds float64
	var err error
	switch kind {
	case GhostUsers:
		planned.PerRun = c.GhostUsers.Limit
		err = on.QueryRow(ctx, db.Names.Render("SELECT "+ghostuser.CountDueSQL+", "+ghostuser.NextDueSQL)).Scan(&planned.Due, &seconds)
	case PlaceholderCleanup:
		rules := PlaceholderRules(c)
		sql := "SELECT " + placeholder.CountDueSQL(1, 2) + ", " + placeholder.NextDueSQL(1, 2)
		err = on.QueryRow(ctx, db.Names.Render(sql), rules.MaxAttempts, rules.RetryPeriod.Seconds()).Scan(&planned.Due, &seconds)
	case AdjournedGroupDeletion:
		err = on.QueryRow(ctx, db.Names.Render("SELECT "+groupschedule.CountDueSQL+", "+groupschedule.NextDueSQL)).Scan(&planned.Due, &seconds)
	case ScheduleExternalDiffs:
		planned.PerRun = c.ExternalDiffs.Limit
		seconds, err = planned.readDiffs(ctx, on, c, db)
	default:
		seconds, err = planned.readJobs(ctx, on, db, kind)
	}
	if err != nil {
		return Planned{}, fmt.Errorf("look what %s would do: %w", kind, err)
	}
	planned.Capped = planned.Capped || planned.Due > plannedCap
	planned.Due, planned.RemovalsDue = min(planned.Due, plannedCap), min(planned.RemovalsDue, plannedCap)
	if seconds > 0 {
		at := time.Now().Add(time.Duration(seconds * float64(time.Second))).UTC().Truncate(time.Second)
		planned.NextDueAt = &at
	}
	return planned, nil
}

func (p *Planned) readDiffs(ctx context.Context, on dbsqlc.DBTX, c *config.Config, db database.Database) (seconds float64, err error) {
	sql, err := diffRule(c).CountDueSQL(bySize(c))
	if err != nil {
		return 0, err
	}
	if err := on.QueryRow(ctx, db.Names.Render(sql)).Scan(&p.Due, &p.Capped); err != nil {
		return 0, err
	}
	err = on.QueryRow(ctx, db.Names.Render("SELECT "+extdiff.CountRemovalsSQL+", "+extdiff.NextRemovalSQL)).Scan(&p.RemovalsDue, &seconds)
	return seconds, err
}

// readJobs counts the waiting jobs of a kind.
func (p *Planned) readJobs(ctx context.Context, on dbsqlc.DBTX, db database.Database, kind string) (seconds float64, err error) {
	const sql = `
SELECT
    (SELECT pg_catalog.count(*) FROM (
        SELECT FROM "sexton".river_job AS job
        WHERE job.queue = $1 AND job.kind = $1
          AND job.state IN ('available', 'retryable', 'scheduled')
          AND job.scheduled_at <= pg_catalog.statement_timestamp()
        LIMIT 10001
    ) AS counted),
    coalesce((
        SELECT extract(epoch FROM pg_catalog.min(job.scheduled_at) - pg_catalog.statement_timestamp())
        FROM "sexton".river_job AS job
        WHERE job.queue = $1 AND job.kind = $1
          AND job.state IN ('available', 'retryable', 'scheduled')
          AND job.scheduled_at > pg_catalog.statement_timestamp()
          AND job.scheduled_at < 'infinity'
    ), 0)::pg_catalog.float8`
	err = on.QueryRow(ctx, db.Names.Render(sql), kind).Scan(&p.Due, &seconds)
	return seconds, err
}
