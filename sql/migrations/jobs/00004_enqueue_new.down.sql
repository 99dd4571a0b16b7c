DROP FUNCTION IF EXISTS "sexton".enqueue_new(text, jsonb, timestamptz);
DROP FUNCTION IF EXISTS "sexton".job_waits(text, text);

DELETE FROM "sexton".objects
WHERE kind = 'function'
  AND identity IN (
      '"sexton".job_waits(text, text)',
      '"sexton".enqueue_new(text, jsonb, timestamp with time zone)'
  );
