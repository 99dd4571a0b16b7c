-- Adds or corrects the kinds of the list $1, a JSON array of objects.
INSERT INTO "sexton".job_kinds AS k
    (kind, queue, args, defaults, cron, max_attempts)
SELECT w.kind, w.queue, w.args, w.defaults, w.cron, w.max_attempts
FROM jsonb_to_recordset($1::jsonb)
    AS w (kind text, queue text, args jsonb, defaults jsonb, cron boolean, max_attempts smallint)
ON CONFLICT (kind) DO UPDATE SET
    queue = excluded.queue,
    args = excluded.args,
    defaults = excluded.defaults,
    cron = excluded.cron,
    max_attempts = excluded.max_attempts
WHERE (k.queue, k.args, k.defaults, k.cron, k.max_attempts)
    IS DISTINCT FROM (excluded.queue, excluded.args, excluded.defaults, excluded.cron, excluded.max_attempts);
