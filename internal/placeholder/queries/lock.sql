-- Locks the user. Writers of rows with a foreign key to the user wait for this lock, and this lock waits for writers that came first. The
-- following query has a newer snapshot, so it finds their rows.
SELECT coalesce(placeholder.user_type, 0)::integer FROM "public".users AS placeholder
WHERE placeholder.id OPERATOR(pg_catalog.=) $1 FOR UPDATE
