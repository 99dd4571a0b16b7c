-- Revived tombstones. They are few, and no index of their own leads to them, since every DELETE of a parent would pay for its predicate: they
-- fall due never, so they are the end of each parent's queue. Parents take one index probe each, however many tombstones there are.
CREATE OR REPLACE FUNCTION "sexton".revived_rows()
RETURNS TABLE (
    place tid,
    id bigint,
    fully_qualified_table_name text,
    primary_key_value bigint,
    primary_key_text text,
    created_at timestamptz,
    settled_at timestamptz
)
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
    WITH RECURSIVE parent AS (
        (
            SELECT first.fully_qualified_table_name AS name
            FROM "public".loose_foreign_keys_deleted_records AS first
            ORDER BY first.fully_qualified_table_name
            LIMIT 1
        )
        UNION ALL
        SELECT (
            SELECT next.fully_qualified_table_name
            FROM "public".loose_foreign_keys_deleted_records AS next
            WHERE next.fully_qualified_table_name > parent.name
            ORDER BY next.fully_qualified_table_name
            LIMIT 1
        )
        FROM parent
        WHERE parent.name IS NOT NULL
    )
    SELECT settled.*
    FROM parent
    CROSS JOIN LATERAL (
        SELECT revived.ctid, revived.id, revived.fully_qualified_table_name, revived.primary_key_value, revived.primary_key_text,
            revived.created_at, revived.settled_at
        FROM "public".loose_foreign_keys_deleted_records AS revived
        WHERE revived.fully_qualified_table_name = parent.name AND revived.consume_after = 'infinity' AND revived.status = 3
        OFFSET 0
    ) AS settled;
$sexton$;

COMMENT ON FUNCTION "sexton".revived_rows() IS 'Sexton: deleted rows whose keys live, so that their children stay';

CREATE OR REPLACE VIEW "sexton".revived AS
SELECT r.* FROM "sexton".revived_rows() AS r;

COMMENT ON VIEW "sexton".revived IS 'Sexton: deleted rows whose keys live, so that their children stay';

INSERT INTO "sexton".objects (kind, identity, component) VALUES ('view', '"sexton".revived', 'loose_foreign_keys') ON CONFLICT DO NOTHING;
