package ghostuser

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

// dueSQL are the users that can be taken now. clock_timestamp() is volatile and would bound no index.
const dueSQL = `FROM "public".users_ghost_user_migrations AS job WHERE job.consume_after OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()`

// DueSQL is a condition, to be rendered for the configured schemas: some user can be taken now.
const DueSQL = `EXISTS (SELECT ` + dueSQL + `)`

// CountDueSQL is an expression, to be rendered for the configured schemas: how many can, 10,001 where there are more.
const CountDueSQL = `(SELECT pg_catalog.count(*) FROM (SELECT ` + dueSQL + ` LIMIT 10001) AS counted)`

// NextDueSQL is an expression, to be rendered for the configured schemas: in how many seconds (float8) the next user
// falls due that is put off, or 0 where none is. A user put off for ever (infinity) never does, and Postgres refuses to
// subtract that.
const NextDueSQL = `coalesce((
    SELECT extract(epoch FROM pg_catalog.min(job.consume_after) OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp())
    FROM "public".users_ghost_user_migrations AS job
    WHERE job.consume_after OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp() AND job.consume_after OPERATOR(pg_catalog.<) 'infinity'
), 0)::pg_catalog.float8`

// loadSQL loads due users, those with the oldest claim first, except the ones that the run has seen ($1).
const loadSQL = `
SELECT job.id, job.user_id, job.hard_delete, job.children_first
FROM "public".users_ghost_user_migrations AS job
WHERE job.consume_after OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
  AND job.id OPERATOR(pg_catalog.<>) ALL ($1::bigint[])
ORDER BY job.consume_after, job.id
LIMIT $2`

// deferSQL sends unfinished users to the back of the due ones, in the order in which they stand. A user whose row another
// session has locked keeps its place; the lock must not fail the run.
const deferSQL = `
UPDATE "public".users_ghost_user_migrations AS job
SET consume_after = pg_catalog.clock_timestamp(), updated_at = pg_catalog.clock_timestamp()
WHERE job.id OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT unlocked.id
    FROM "public".users_ghost_user_migrations AS unlocked
    WHERE unlocked.id OPERATOR(pg_catalog.=) ANY ($1::bigint[])
    FOR NO KEY UPDATE SKIP LOCKED
))`

// blameSQL counts an attempt, records why, and puts the user off for $3 seconds.
const blameSQL = `
UPDATE "public".users_ghost_user_migrations AS job
SET attempts = job.attempts OPERATOR(pg_catalog.+) 1,
    last_error = $2,
    consume_after = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3::pg_catalog.float8),
    updated_at = pg_catalog.clock_timestamp()
WHERE job.id OPERATOR(pg_catalog.=) $1`

// dropSQL takes a user out of the queue that exists no more.
const dropSQL = `DELETE FROM "public".users_ghost_user_migrations AS job WHERE job.id OPERATOR(pg_catalog.=) $1`

// Backlog sums up the queue.
type Backlog struct {
	// Pending counts users, users that are put off included, up to 10,000. Capped tells that there are more than it says.
	Pending int64 `json:"pending"`
	Capped  bool  `json:"capped"`
	// OldestAge is the time since the first of them came in.
	OldestAge time.Duration `json:"oldest_age"`
	// Deferred counts users that are put off after an error, up to 10,000. The first of them falls due at DeferredUntil, nil where
	// that is never, and failed for DeferredReason.
	Deferred       int64      `json:"deferred"`
	DeferredUntil  *time.Time `json:"deferred_until,omitempty"`
	DeferredReason string     `json:"deferred_reason,omitempty"`
}

// ReadBacklog counts what waits. The database has the one definition of it, which "sexton".backlog shows as well.
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) (Backlog, error) {
	const sql = `
SELECT pending, capped, oldest_age_seconds, deferred,
    CASE WHEN deferred_until OPERATOR(pg_catalog.<>) 'infinity' THEN deferred_until END, coalesce(deferred_reason, '')
FROM "sexton".backlog_of_ghost_users()`
	var b Backlog
	var age float64
	if err := db.QueryRow(ctx, names.Render(sql)).Scan(&b.Pending, &b.Capped, &age, &b.Deferred, &b.DeferredUntil, &b.DeferredReason); err != nil {
		return Backlog{}, fmt.Errorf("count users to be deleted: %w", err)
	}
	b.OldestAge = time.Duration(age * float64(time.Second))
	if b.DeferredUntil != nil {
		at := b.DeferredUntil.UTC()
		b.DeferredUntil = &at
	}
	return b, nil
}

// Waiting is one user in the queue.
type Waiting struct {
	UserID     int64     `json:"user_id"`
	HardDelete bool      `json:"hard_delete"`
	CreatedAt  time.Time `json:"created_at"`
	// ConsumeAfter is the time before which the user is not taken; it may be infinite.
	ConsumeAfter pgtype.Timestamptz `json:"consume_after"`
	Attempts     int64              `json:"attempts"`
	LastError    string             `json:"last_error,omitempty"`
	Moved        int64              `json:"moved"`
	Deleted      int64              `json:"deleted"`
	Nullified    int64              `json:"nullified"`
	// Remaining is an estimate: nil before the user's first turn is over, and remainingCap (10,000) where it is that or more.
	Remaining *int64 `json:"remaining,omitempty"`
	// ChildrenFirst are tables of which one row took longer to delete than a statement may, with what hangs below it by foreign keys:
	// that goes first, in small steps.
	ChildrenFirst []string `json:"children_first,omitempty"`
}

const waitingSQL = `
SELECT job.user_id, job.hard_delete, job.created_at, job.consume_after, job.attempts::bigint, coalesce(job.last_error, ''),
    job.moved_rows, job.deleted_rows, job.nullified_rows, job.remaining_rows, job.children_first
FROM "public".users_ghost_user_migrations AS job
ORDER BY job.consume_after, job.id
LIMIT $1`

// ReadWaiting returns the first users of the queue, in the order in which they will be taken.
func ReadWaiting(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, limit int) ([]Waiting, error) {
	rows, err := db.Query(ctx, names.Render(waitingSQL), limit)
	if err != nil {
		return nil, fmt.Errorf("read users to be deleted: %w", err)
	}
	waiting, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Waiting])
	if err != nil {
		return nil, fmt.Errorf("read users to be deleted: %w", err)
	}
	return waiting, nil
}
