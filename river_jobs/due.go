package riverjobs

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/database"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
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

// looseForeignKeysDueSQL is the kind's one predicate: whether there are tombstones that it may take now, and
// in how many seconds the next falls due. Removed tombstones that can be confirmed count as well; the third column
// reports whether any wait for that. $1 is the kind, $2 the database, $3 are the parents that definitions name, with
// the places in their queues, $4 and $5, above which to look; $6 and $7 are the settings for confirming. barred is the
// part that is asked of the jobs database: paused, or cut short by this tick's limits: not now. Another database is asked first, and the
// jobs database only where something is due.
//
// clock_timestamp() is volatile and bounds no index: with it every look reads all due tombstones, or all that are put off.
// The order keeps the planner from reading the table for the first that is due.
func looseForeignKeysDueSQL(barred string) string {
	return `
SELECT
    (EXISTS (
        SELECT FROM unnest($3::pg_catalog.text[], $4::pg_catalog.timestamptz[], $5::bigint[]) AS parent (name, consume_after, id)
        WHERE EXISTS (
            SELECT FROM "public".loose_foreign_keys_deleted_records AS tombstone
            WHERE tombstone.fully_qualified_table_name = parent.name
              AND tombstone.status = 1
              AND tombstone.consume_after <= pg_catalog.statement_timestamp()
              AND (tombstone.consume_after, tombstone.id) > (parent.consume_after, parent.id)
            ORDER BY tombstone.consume_after, tombstone.id
            OFFSET 0
        )
    ) OR ` + loosefk.ConfirmableSQL(2, 6, 7) + `)
    AND NOT (` + barred + `),
    coalesce((
        SELECT extract(epoch FROM pg_catalog.min(next.consume_after) - pg_catalog.statement_timestamp())
        FROM pg_catalog.unnest($3::pg_catalog.text[]) AS parent (name)
        CROSS JOIN LATERAL (
            SELECT tombstone.consume_after
            FROM "public".loose_foreign_keys_deleted_records AS tombstone
            WHERE tombstone.fully_qualified_table_name = parent.name
              AND tombstone.status = 1
              AND tombstone.consume_after > pg_catalog.statement_timestamp()
              AND tombstone.consume_after < 'infinity'
            ORDER BY tombstone.consume_after
            LIMIT 1
        ) AS next
    ), 0)::pg_catalog.float8,
    EXISTS (SELECT FROM "sexton".swept AS swept WHERE swept.database = $2)`
}

// confirmEvery is how often a worker without other work looks whether older transactions have ended, of which no
// notification tells.
const confirmEvery = 5 * time.Second

// barredSQL tells of kind $1 and database $2 whether nothing may be done now, whatever there is to do.
const barredSQL = pausedSQL + ` OR ` + tickSpentSQL

// looseForeignKeysDue asks the predicate on any connection or transaction of the database: from the marks on or,
// with fresh, from the beginning. What is found there is not to be overlooked by the next run.
func looseForeignKeysDue(ctx context.Context, deps Deps, on listen.Querier, db database.Database, fresh bool) (listen.Due, error) {
	marks, settings := deps.Bindings.marksOf(db.Name), deps.Config.LooseForeignKeys
	parents := deps.Bindings.recorded(db.Name)
	times, ids := marks.Places(parents, fresh)
	args := []any{LooseForeignKeys, db.Name, parents, times, ids, settings.ConfirmWithin.Seconds(), settings.ConfirmGrace.Seconds()}
	condition, jobs := barredSQL, deps.jobsDB()
	if jobs.Name != db.Name {
		condition, args[0] = "$1::boolean", false
	}
	var due listen.Due
	var seconds float64
	var confirming bool
	err := on.QueryRow(ctx, db.Names.Render(looseForeignKeysDueSQL(condition)), args...).Scan(&due.Now, &seconds, &confirming)
	if err != nil {
		return listen.Due{}, fmt.Errorf("look for due tombstones: %w", err)
	}
	if due.Now && jobs.Name != db.Name {
		var barred bool
		if err := jobs.Async().QueryRow(ctx, jobs.Names.Render("SELECT "+barredSQL), LooseForeignKeys, db.Name).Scan(&barred); err != nil {
			return listen.Due{}, fmt.Errorf("look whether %s may run: %w", LooseForeignKeys, err)
		}
		due.Now = !barred
	}
	due.In = max(0, time.Duration(seconds*float64(time.Second)))
	if fresh && due.Now {
		marks.Forget()
	}
	if confirming && (due.In == 0 || due.In > confirmEvery) {
		due.In = confirmEvery
	}
	return due, nil
}

// Recorded are the names that tombstones of the parents carry.
func Recorded(parents []*loosefk.Parent) []string {
	names := make([]string, len(parents))
	for i, parent := range parents {
		names[i] = parent.Recorded
	}
	return names
}
