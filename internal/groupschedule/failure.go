package groupschedule

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

// Failure is a group whose destruction has failed, or about which nothing could be decided.
type Failure struct {
	GroupID int64
	// Path is empty where the group is gone.
	Path string
	// Begun tells that its destruction has begun.
	Begun    bool
	Attempts int64
	Error    string
	// Next is when it is tried again; nil where the next pass decides.
	Next *time.Time
	// JobID is the job that waits to destroy it or is at it; 0 where there is none.
	JobID int64
	// UserID is on whose behalf it is destroyed.
	UserID int64
}

// failuresSQL are the failed groups, most often tried first; $2 is one of them, or NULL.
const failuresSQL = `
WITH failed AS (
    SELECT DISTINCT ON (one.group_id) one.*
    FROM (
        SELECT destruction.group_id, true AS begun, destruction.attempts, destruction.last_error, NULL::pg_catalog.timestamptz AS retry_at
        FROM "sexton".group_destructions AS destruction
        WHERE destruction.last_error IS NOT NULL AND ($2::bigint IS NULL OR destruction.group_id OPERATOR(pg_catalog.=) $2)
        UNION ALL
        SELECT failure.group_id, false, failure.attempts, failure.last_error, failure.retry_at
        FROM "sexton".group_deletion_failures AS failure
        WHERE $2::bigint IS NULL OR failure.group_id OPERATOR(pg_catalog.=) $2
    ) AS one
    ORDER BY one.group_id, one.begun DESC
), jobs AS (
    SELECT DISTINCT ON (1) (job.args OPERATOR(pg_catalog.->>) 'group_id')::bigint AS group_id, job.scheduled_at, job.id
    FROM "sexton".river_job AS job
    WHERE job.kind OPERATOR(pg_catalog.=) 'group_destroy' AND job.state OPERATOR(pg_catalog.=) ANY ('{available,pending,running,retryable,scheduled}')
    ORDER BY 1, job.scheduled_at
)
SELECT failed.group_id, coalesce(groups.path, ''), failed.begun, failed.attempts::bigint, failed.last_error,
    CASE WHEN jobs.id IS NOT NULL THEN jobs.scheduled_at WHEN failed.retry_at OPERATOR(pg_catalog.<) 'infinity' THEN failed.retry_at END,
    coalesce(jobs.id, 0), coalesce(schedule.user_id, destruction.user_id, 0)
FROM failed
LEFT JOIN "public".groups ON groups.id OPERATOR(pg_catalog.=) failed.group_id
LEFT JOIN "public".group_deletion_schedules AS schedule ON schedule.group_id OPERATOR(pg_catalog.=) failed.group_id
LEFT JOIN "sexton".group_destructions AS destruction ON destruction.group_id OPERATOR(pg_catalog.=) failed.group_id
LEFT JOIN jobs ON jobs.group_id OPERATOR(pg_catalog.=) failed.group_id
ORDER BY failed.attempts DESC, failed.group_id
LIMIT $1`

// ReadFailed lists the first of the failed groups, most often tried first.
func ReadFailed(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, limit int) ([]Failure, error) {
	return readFailed(ctx, db, names, limit, nil)
}

func readFailed(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, limit int, id *int64) ([]Failure, error) {
	rows, err := db.Query(ctx, names.Render(failuresSQL), limit, id)
	if err != nil {
		return nil, fmt.Errorf("list failed groups: %w", err)
	}
	failed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Failure])
	if err != nil {
		return nil, fmt.Errorf("list failed groups: %w", err)
	}
	return failed, nil
}

// Retry lets the next pass decide about a failed group at once, and returns how it stands; nil where it has not failed, or not
// any more. A job that waits is the caller's to pull forward, and where there is none for a destruction that has begun, to insert.
func Retry(ctx context.Context, tx pgx.Tx, names pgschema.Names, id int64) (*Failure, error) {
	const sql = `
UPDATE "sexton".group_deletion_failures AS failure
SET retry_at = pg_catalog.statement_timestamp(), updated_at = pg_catalog.clock_timestamp()
WHERE failure.group_id OPERATOR(pg_catalog.=) $1 AND failure.retry_at OPERATOR(pg_catalog.>) pg_catalog.statement_timestamp()`
	if _, err := tx.Exec(ctx, names.Render(sql), id); err != nil {
		return nil, fmt.Errorf("retry group %d: %w", id, err)
	}
	failed, err := readFailed(ctx, tx, names, 1, &id)
	if err != nil || len(failed) == 0 {
		return nil, err
	}
	return &failed[0], nil
}
