package component

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
)

// Planned foresees the work of a kind. Counts stop at PendingCap.
type Planned struct {
	// Due counts the rows that a pass may take now, by the predicate that wakes it; for kinds whose jobs another one inserts, the
	// jobs whose time has come. Capped reports that there are more, or may be.
	Due    int64 `json:"due"`
	Capped bool  `json:"due_capped"`
	// PerRun is how many of them one pass takes at most; 0 where only its time bounds it.
	PerRun int `json:"per_run,omitempty"`
	// RemovalsDue counts objects that the pass would remove from the store.
	RemovalsDue int64 `json:"removals_due,omitempty"`
	// NextDueAt is the time when the next one falls due that is not yet; nil where none does.
	NextDueAt *time.Time `json:"next_due_at"`
}

// Planner counts what a pass of one kind would do now.
type Planner func(ctx context.Context, on dbsqlc.DBTX, c *config.Config, db database.Database) (Planned, error)

// Counting reads two expressions into Due and NextDueAt: how many are due, and in how many seconds the next falls due, 0 where none does.
// settings, if there are any, are PerRun and the arguments of the expressions.
func Counting(expressions string, settings func(*config.Config) (perRun int, args []any)) Planner {
	return func(ctx context.Context, on dbsqlc.DBTX, c *config.Config, db database.Database) (p Planned, err error) {
		var args []any
		if settings != nil {
			p.PerRun, args = settings(c)
		}
		p.Due, err = p.next(ctx, on, db, expressions, args...)
		return p, err
	}
}

// CountRemovals counts what goes beside the rows.
func (p *Planned) CountRemovals(ctx context.Context, on dbsqlc.DBTX, db database.Database, expressions string) error {
	var err error
	p.RemovalsDue, err = p.next(ctx, on, db, expressions)
	return err
}

func (p *Planned) next(ctx context.Context, on dbsqlc.DBTX, db database.Database, expressions string, args ...any) (due int64, err error) {
	var seconds float64
	if err := on.QueryRow(ctx, db.Names.Render("SELECT "+expressions), args...).Scan(&due, &seconds); err != nil {
		return 0, fmt.Errorf("count what is due: %w", err)
	}
	if seconds > 0 {
		at := time.Now().Add(time.Duration(seconds * float64(time.Second))).UTC().Truncate(time.Second)
		p.NextDueAt = &at
	}
	p.Capped = p.Capped || due > PendingCap
	return min(due, PendingCap), nil
}

// waitingJobs are expressions of the jobs of the kind $1: how many wait, and in how many seconds the next one's time comes.
const waitingJobs = `
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

// PlanJobs counts the waiting jobs of a kind that another one inserts.
func PlanJobs(kind string) Planner {
	return Counting(waitingJobs, func(*config.Config) (int, []any) { return 0, []any{kind} })
}
