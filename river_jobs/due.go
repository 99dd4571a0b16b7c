package riverjobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/riverqueue/river"

	"sexton/internal/database"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/cleanup"
	"sexton/triggers"
)

// tickSpentSQL reports whether the last pass of kind $1 for database $2 met its limits after the last tick.
const tickSpentSQL = `coalesce((SELECT (run.stats ->> 'over_limit')::boolean AND ` + inTickSQL + lastPassSQL + `), false)`

const (
	inTickSQL = `run.ended_at > (
            SELECT schedule.last_tick FROM "sexton".schedules AS schedule WHERE schedule.kind = $1 AND schedule.database = $2
        )`

	lastPassSQL = `
        FROM "sexton".runs AS run
        WHERE (run.kind, run.database) >= ($1, $2)
          AND (run.kind, run.database) <= ($1, $2)
          AND run.outcome IN ('done', 'over_limit', 'failed')
        ORDER BY run.kind, run.database, run.started_at DESC, run.id DESC
        LIMIT 1`
)

// TickSpent reports whether a kind has used up its limits for the named database until the next tick. The
// history is in jobs.
func TickSpent(ctx context.Context, jobs database.Database, kind, name string) (bool, error) {
	var spent bool
	if err := jobs.Async().QueryRow(ctx, jobs.Names.Render("SELECT "+tickSpentSQL), kind, name).Scan(&spent); err != nil {
		return false, fmt.Errorf("look at the limits of %s: %w", kind, err)
	}
	return spent, nil
}

// pausedSQL reports whether the queue of kind $1 is paused.
const pausedSQL = `EXISTS (SELECT FROM "sexton".river_queue AS queue WHERE queue.name = $1 AND queue.paused_at IS NOT NULL)`

// barredSQL tells of kind $1 and database $2 whether nothing may be done now, whatever there is to do.
const barredSQL = pausedSQL + ` OR ` + tickSpentSQL

// dueBy is the predicate of a kind by SQL: due is whether there is something that it may take now, which it may not while its queue is paused,
// and next in how many seconds something falls due. Their parameters are args, and the kind behind them.
func dueBy[T river.JobArgs](what, due, next string, args ...any) predicate {
	var of T
	args = append(slices.Clip(args), of.Kind())
	sql := "SELECT " + due + " AND NOT " + strings.ReplaceAll(pausedSQL, "$1", fmt.Sprint("$", len(args))) + ", " + next
	return func(ctx context.Context, _ Deps, on listen.Querier, db database.Database, _ bool) (found listen.Due, err error) {
		var seconds float64
		if err := on.QueryRow(ctx, db.Names.Render(sql), args...).Scan(&found.Now, &seconds); err != nil {
			return listen.Due{}, fmt.Errorf("look for due %s: %w", what, err)
		}
		found.In = max(0, time.Duration(seconds*float64(time.Second)))
		return found, nil
	}
}

// looseForeignKeysDue is the kind's one predicate.
func looseForeignKeysDue(ctx context.Context, deps Deps, on listen.Querier, db database.Database, fresh bool) (listen.Due, error) {
	return deps.cleanup().Due(ctx, on, db, fresh, barredSQL)
}

// cleanup returns what passes and looks of the loose foreign keys need.
func (d Deps) cleanup() *cleanup.Work {
	return &cleanup.Work{
		Config: d.Config, Databases: d.Databases, Jobs: d.jobsDB(), Definitions: d.Definitions, Logger: d.Logger,
		Memory: d.Bindings.memory(), Pauses: &d.Bindings.pauses, Held: d.Bindings,
		Track: func(db database.Database, parents []*loosefk.Parent) (triggers.Config, []triggers.Parent) {
			return Tracking(d.Config, db, parents)
		},
	}
}
