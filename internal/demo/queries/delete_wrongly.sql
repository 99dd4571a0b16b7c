-- The deletion, and the number under which it is kept.
WITH gone AS (
    DELETE FROM "public".projects WHERE id = $1 RETURNING id
)
SELECT count(*) FROM gone
