-- Rows that refer to the user by a foreign key wait for this lock, and this lock for rows that are being written: the look that follows
-- sees them, as its snapshot is younger than the lock.
SELECT coalesce(placeholder.user_type, 0)::integer FROM "public".users AS placeholder
WHERE placeholder.id OPERATOR(pg_catalog.=) $1 FOR UPDATE
