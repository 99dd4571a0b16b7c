-- Inserts or updates the kinds of the list $1, a JSON array of objects.
INSERT INTO "sexton".job_kinds AS k
    (kind, queue, args, defaults, cron, max_attempts, row_table, row_column, row_argument, databases)
SELECT w.kind, w.queue, w.args, w.defaults, w.cron, w.max_attempts, w.row_table, w.row_column, w.row_argument, w.databases
FROM pg_catalog.jsonb_to_recordset($1::pg_catalog.jsonb)
    AS w (kind text, queue text, args jsonb, defaults jsonb, cron boolean, max_attempts smallint, row_table text, row_column text, row_argument text,
        databases text[])
ON CONFLICT (kind) DO UPDATE SET
    queue = excluded.queue,
    args = excluded.args,
    defaults = excluded.defaults,
    cron = excluded.cron,
    max_attempts = excluded.max_attempts,
    row_table = excluded.row_table,
    row_column = excluded.row_column,
    row_argument = excluded.row_argument,
    databases = excluded.databases
WHERE (k.queue, k.args, k.defaults, k.cron, k.max_attempts, k.row_table, k.row_column, k.row_argument, k.databases)
    IS DISTINCT FROM (excluded.queue, excluded.args, excluded.defaults, excluded.cron, excluded.max_attempts,
        excluded.row_table, excluded.row_column, excluded.row_argument, excluded.databases);
