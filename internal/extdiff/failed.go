package extdiff

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

// MoveKind is the kind of the jobs that move one diff each, with the argument diff_id. It is frozen.
const MoveKind = "migrate_external_diff"

// failedWindow is how many skipped diffs and how many failed jobs are looked through.
const failedWindow = 500

// Failure is a diff that is due and stays in the database.
type Failure struct {
	DiffID int64
	// Skip is why it cannot be moved; empty where an attempt has failed, with Error, or its upload does not come to its end.
	Skip  Skip
	Error string
	// Attempts counts those of the last job.
	Attempts int64
	// Next is when that job is tried again; nil where the next round over all diffs takes it up.
	Next *time.Time
}

const failedSQL = `
WITH skipped AS (
    SELECT ledger.diff_id, ledger.skip_reason AS skip, '' AS error, 0 AS attempts, NULL::pg_catalog.timestamptz AS next
    FROM "sexton".external_diffs AS ledger
    WHERE ledger.skip_reason IS NOT NULL
    LIMIT $2
), uploads AS (
    SELECT ledger.diff_id, '' AS skip,
        pg_catalog.format('%s of %s bytes are uploaded since %s; the last attempt: %s', ledger.upload_sent, ledger.upload_bytes,
            pg_catalog.to_char(ledger.upload_began_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), ledger.upload_error) AS error,
        ledger.upload_failures AS attempts, NULL::pg_catalog.timestamptz AS next
    FROM "sexton".external_diffs AS ledger
    JOIN "public".merge_request_diffs AS diff ON diff.id OPERATOR(pg_catalog.=) ledger.diff_id AND ` + inDatabaseSQL + `
    WHERE ledger.upload_id IS NOT NULL AND ledger.upload_failures OPERATOR(pg_catalog.>) 0 AND ledger.skip_reason IS NULL
    LIMIT $2
), jobs AS (
    SELECT (job.args OPERATOR(pg_catalog.->>) 'diff_id')::bigint AS diff_id, job.id, job.attempt, job.state, job.scheduled_at,
        job.errors[pg_catalog.array_upper(job.errors, 1)] OPERATOR(pg_catalog.->>) 'error' AS error
    FROM "sexton".river_job AS job
    WHERE job.kind OPERATOR(pg_catalog.=) $3 AND job.queue OPERATOR(pg_catalog.=) $3 AND job.state OPERATOR(pg_catalog.=) ANY ('{retryable,discarded}')
    ORDER BY job.id DESC
    LIMIT $2
), failed AS (
    SELECT DISTINCT ON (jobs.diff_id) jobs.diff_id, '' AS skip, coalesce(jobs.error, '') AS error, jobs.attempt::integer AS attempts,
        CASE WHEN jobs.state OPERATOR(pg_catalog.=) 'retryable' THEN jobs.scheduled_at END AS next
    FROM jobs
    -- A later attempt may have moved it.
    JOIN "public".merge_request_diffs AS diff ON diff.id OPERATOR(pg_catalog.=) jobs.diff_id AND ` + inDatabaseSQL + `
    WHERE NOT ` + keptSQL + `
      AND NOT EXISTS (
          SELECT FROM "sexton".external_diffs AS ledger WHERE ledger.diff_id OPERATOR(pg_catalog.=) jobs.diff_id AND ledger.skip_reason IS NOT NULL
          UNION ALL SELECT FROM uploads WHERE uploads.diff_id OPERATOR(pg_catalog.=) jobs.diff_id
      )
    ORDER BY jobs.diff_id, jobs.id DESC
)
SELECT one.diff_id, one.skip, one.error, one.attempts::bigint, one.next
FROM (SELECT * FROM failed UNION ALL SELECT * FROM uploads UNION ALL SELECT * FROM skipped) AS one
ORDER BY one.skip OPERATOR(pg_catalog.<>) '', one.diff_id
LIMIT $1`

// ReadFailed lists the first of the diffs that stay in the database although they are due: those of which an attempt has failed
// before skipped ones.
func ReadFailed(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, limit int) ([]Failure, error) {
	rows, err := db.Query(ctx, names.Render(failedSQL), limit, failedWindow, MoveKind)
	if err != nil {
		return nil, fmt.Errorf("list diffs that stay in the database: %w", err)
	}
	failed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Failure])
	if err != nil {
		return nil, fmt.Errorf("list diffs that stay in the database: %w", err)
	}
	return failed, nil
}

// retrySQL has diffs tried at once: a job that waits is pulled forward, otherwise one is made.
const retrySQL = `
WITH waiting AS MATERIALIZED (
    SELECT diff.id FROM "public".merge_request_diffs AS diff WHERE diff.id OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND ` + inDatabaseSQL + ` ORDER BY diff.id
), enqueued AS MATERIALIZED (
    SELECT "sexton".enqueue($2, pg_catalog.jsonb_build_object('diff_id', waiting.id), pg_catalog.statement_timestamp()) AS job_id FROM waiting
)
SELECT pg_catalog.count(*) FROM enqueued WHERE enqueued.job_id IS NOT NULL`

// Retry has diffs tried again at once, and returns how many of them are in the database still.
func Retry(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, ids []int64) (int64, error) {
	var retried int64
	if err := db.QueryRow(ctx, names.Render(retrySQL), ids, MoveKind).Scan(&retried); err != nil {
		return 0, fmt.Errorf("retry diffs: %w", err)
	}
	return retried, nil
}
