-- Makes the jobs of the diffs $1 due now. It makes pending jobs due and inserts missing ones. Returns the number of the diffs.
WITH waiting AS MATERIALIZED (
    SELECT diff.id FROM "public".merge_request_diffs AS diff WHERE diff.id OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND {in_database} ORDER BY diff.id
), enqueued AS MATERIALIZED (
    SELECT "sexton".enqueue($2, pg_catalog.jsonb_build_object('diff_id', waiting.id), pg_catalog.statement_timestamp()) AS job_id FROM waiting
)
SELECT pg_catalog.count(*) FROM enqueued WHERE enqueued.job_id IS NOT NULL
