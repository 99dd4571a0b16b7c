DROP FUNCTION IF EXISTS "sexton".enqueue(text, jsonb, timestamptz);
DROP FUNCTION IF EXISTS "sexton".job_args(text, jsonb, jsonb, jsonb);
DROP FUNCTION IF EXISTS "sexton".job_argument(text, jsonb);

DELETE FROM "sexton".objects
WHERE identity IN (
    '"sexton".job_argument(text, jsonb)',
    '"sexton".job_args(text, jsonb, jsonb, jsonb)',
    '"sexton".enqueue(text, jsonb, timestamp with time zone)'
);
