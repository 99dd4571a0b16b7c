SELECT pg_catalog.to_jsonb(job.user_id), job.hard_delete, job.created_at, job.consume_after, job.attempts::bigint, coalesce(job.last_error, ''),
    job.moved_rows, job.deleted_rows, job.nullified_rows, job.remaining_rows
FROM {rows}
ORDER BY job.consume_after, job.id
LIMIT $1
