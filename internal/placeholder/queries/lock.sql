-- Locks the user. Sessions that insert rows with a foreign key to the user wait for this
-- lock, and this lock waits for sessions that have inserted such rows before. The
-- following query has a newer snapshot, so it finds those rows.
SELECT coalesce(placeholder.user_type, 0)::integer FROM "public".users AS placeholder
WHERE placeholder.id OPERATOR(pg_catalog.=) $1 FOR UPDATE
