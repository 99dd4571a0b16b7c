package riverjobs

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
)

// looseForeignKeysDueSQL is the kind's one predicate: whether there are tombstones that it may take now, and
// in how many seconds the next falls due. $1 are the parents that definitions name, $2 the kind, $3 the
// database. Paused, or cut short by this tick's limits: not now.
const looseForeignKeysDueSQL = `
SELECT
    EXISTS (
        SELECT FROM unnest($1::text[]) AS parent (name)
        WHERE EXISTS (
            SELECT FROM "public".loose_foreign_keys_deleted_records AS tombstone
            WHERE tombstone.fully_qualified_table_name = parent.name
              AND tombstone.status = 1
              AND tombstone.consume_after <= clock_timestamp()
            OFFSET 0
        )
    )
    AND NOT EXISTS (SELECT FROM "sexton".river_queue AS queue WHERE queue.name = $2 AND queue.paused_at IS NOT NULL)
    AND NOT coalesce((
        SELECT (run.stats ->> 'over_limit')::boolean AND run.ended_at > schedule.last_tick
        FROM "sexton".runs AS run
        JOIN "sexton".schedules AS schedule ON schedule.kind = run.kind AND schedule.database = run.database
        WHERE run.kind = $2 AND run.database = $3 AND run.outcome IN ('done', 'over_limit', 'failed')
        ORDER BY run.id DESC
        LIMIT 1
    ), false),
    coalesce((
        SELECT extract(epoch FROM min(next.consume_after) - clock_timestamp())
        FROM unnest($1::text[]) AS parent (name)
        CROSS JOIN LATERAL (
            SELECT tombstone.consume_after
            FROM "public".loose_foreign_keys_deleted_records AS tombstone
            WHERE tombstone.fully_qualified_table_name = parent.name
              AND tombstone.status = 1
              AND tombstone.consume_after > clock_timestamp()
            ORDER BY tombstone.consume_after
            LIMIT 1
        ) AS next
    ), 0)::float8`

// looseForeignKeysDue asks the predicate on any connection or transaction of the database.
func looseForeignKeysDue(ctx context.Context, on dbsqlc.DBTX, db database.Database, parents []string) (listen.Due, error) {
	var due listen.Due
	var seconds float64
	err := on.QueryRow(ctx, db.Names.Render(looseForeignKeysDueSQL), parents, looseForeignKeysKind, db.Name).Scan(&due.Now, &seconds)
	if err != nil {
		return listen.Due{}, fmt.Errorf("look for due tombstones: %w", err)
	}
	due.In = max(0, time.Duration(seconds*float64(time.Second)))
	return due, nil
}

// recorded are the names that tombstones of the parents carry.
func recorded(parents []*loosefk.Parent) []string {
	names := make([]string, len(parents))
	for i, parent := range parents {
		names[i] = parent.Recorded
	}
	return names
}
