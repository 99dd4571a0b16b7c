package placeholder

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

// Backlog sums up the waiting placeholders.
type Backlog struct {
	// Pending counts the rows of ownerless placeholders that are to be deleted, those tried and put off included. Capped tells
	// that there are more than it says. Those in the queue of the users to be deleted are counted there.
	Pending int64
	Capped  bool
	// OldestAgeSeconds is how long the first of the placeholders that can be offered could be: since its retry period was over or, where it was
	// never tried, since it was created.
	OldestAgeSeconds float64
	// Deferred counts placeholders that were tried within the retry period, or at infinity, which puts one off for ever; no further
	// than Pending. The first of them that can be offered again can be at DeferredUntil; DeferredReason says what kept it.
	Deferred       int64
	DeferredUntil  *time.Time
	DeferredReason string
	// GivenUp counts placeholders that were tried as often as they may be and are there still. It stops at 10,000, too.
	GivenUp int64
}

// ReadBacklog counts what waits. The database has the one definition of it, which "sexton".backlog shows as well.
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, rules Rules) (Backlog, error) {
	const sql = `SELECT pending, capped, oldest_age_seconds, deferred, deferred_until, coalesce(deferred_reason, ''), given_up
		FROM "sexton".placeholder_backlog($1, $2)`
	rows, _ := db.Query(ctx, names.Render(sql), rules.args()...)
	b, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Backlog])
	if err != nil {
		return Backlog{}, fmt.Errorf("count placeholder users: %w", err)
	}
	return b, nil
}

// SaveRules tells the database which rules are in force, for "sexton".backlog, which knows no configuration. Where they stand
// there already nothing is written.
func SaveRules(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, rules Rules) error {
	const sql = `
INSERT INTO "sexton".placeholder_rules AS rules (max_attempts, retry_seconds)
SELECT $1::integer, $2::pg_catalog.float8
WHERE NOT EXISTS (SELECT FROM "sexton".placeholder_rules AS saved WHERE saved.max_attempts = $1 AND saved.retry_seconds = $2)
ON CONFLICT (one) DO UPDATE
SET max_attempts = excluded.max_attempts, retry_seconds = excluded.retry_seconds, updated_at = pg_catalog.clock_timestamp()`
	if _, err := db.Exec(ctx, names.Render(sql), rules.args()...); err != nil {
		return fmt.Errorf("save the rules of placeholder users: %w", err)
	}
	return nil
}
