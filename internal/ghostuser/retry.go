package ghostuser

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

const failedSQL = `
SELECT job.user_id, job.hard_delete, job.created_at, job.consume_after, job.attempts::bigint, coalesce(job.last_error, ''),
    job.moved_rows, job.deleted_rows, job.nullified_rows, job.remaining_rows, job.children_first
FROM (
    SELECT waiting.*
    FROM "public".users_ghost_user_migrations AS waiting
    ORDER BY waiting.consume_after DESC, waiting.id DESC
    LIMIT $2
) AS job
WHERE job.attempts OPERATOR(pg_catalog.>) 0
ORDER BY job.consume_after, job.id
LIMIT $1`

// failedWindow is how many users are looked at from the end of the queue: failing puts a user there.
const failedWindow = 1_000

// ReadFailed returns users that failed, the ones that are tried again first before the others. It never reads a big queue as a whole.
func ReadFailed(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, limit int) ([]Waiting, error) {
	rows, err := db.Query(ctx, names.Render(failedSQL), limit, failedWindow)
	if err != nil {
		return nil, fmt.Errorf("read users that failed: %w", err)
	}
	failed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Waiting])
	if err != nil {
		return nil, fmt.Errorf("read users that failed: %w", err)
	}
	return failed, nil
}

// retryUsersSQL leaves alone what a worker has in hand. NULL in $1 stands for every user that failed.
const retryUsersSQL = `
WITH free AS (
    SELECT job.id
    FROM "public".users_ghost_user_migrations AS job
    WHERE job.attempts OPERATOR(pg_catalog.>) 0 AND ($1::bigint IS NULL OR job.user_id OPERATOR(pg_catalog.=) $1)
    ORDER BY job.consume_after DESC, job.id DESC
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE "public".users_ghost_user_migrations AS job
SET consume_after = least(job.consume_after, pg_catalog.statement_timestamp()), attempts = 0, updated_at = pg_catalog.clock_timestamp()
FROM free
WHERE job.id OPERATOR(pg_catalog.=) free.id`

// Retry makes a user that failed due now, as if it had never failed, or the last thousand of them where user is nil. The
// reason of the last failure stays until the next attempt. It returns how many there were, those apart that a worker has in hand.
func Retry(ctx context.Context, tx pgx.Tx, names pgschema.Names, user *int64) (int64, error) {
	if err := batch.UsePath(ctx, tx, names); err != nil {
		return 0, err
	}
	tag, err := tx.Exec(ctx, names.Render(retryUsersSQL), user, failedWindow)
	if err != nil {
		return 0, fmt.Errorf("retry users: %w", err)
	}
	return tag.RowsAffected(), nil
}
