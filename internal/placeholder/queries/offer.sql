-- Offers the row $3: inserts the job for the time $4, and counts the attempt if the job
-- is new. Returns whether the row is still eligible, and the number of attempts if an
-- attempt was counted.
WITH chosen AS MATERIALIZED (
    SELECT detail.id, detail.placeholder_user_id
    FROM {detail}
    WHERE detail.id OPERATOR(pg_catalog.=) $3 AND ({untried} OR {tried}) AND {unqueued}
    FOR NO KEY UPDATE
), child AS MATERIALIZED (
    SELECT chosen.id, "sexton".enqueue_new('{kind}', pg_catalog.jsonb_build_object('user_id', chosen.placeholder_user_id), $4) AS job_id
    FROM chosen
), counted AS (
    UPDATE {detail}
    SET deletion_attempts = detail.deletion_attempts OPERATOR(pg_catalog.+) 1,
        last_deletion_attempt_at = pg_catalog.statement_timestamp(),
        updated_at = pg_catalog.statement_timestamp()
    FROM child
    WHERE detail.id OPERATOR(pg_catalog.=) child.id AND child.job_id IS NOT NULL
    RETURNING detail.deletion_attempts
)
SELECT EXISTS (SELECT FROM chosen), (SELECT counted.deletion_attempts FROM counted)
