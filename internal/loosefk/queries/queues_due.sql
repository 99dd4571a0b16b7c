SELECT parent.name::pg_catalog.text AS name
FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.timestamptz[]), pg_catalog.unnest($3::bigint[]))
    AS parent (name, consume_after, id)
WHERE EXISTS (
    SELECT
    FROM "public".loose_foreign_keys_deleted_records AS tombstone
    WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) parent.name
      AND tombstone.status OPERATOR(pg_catalog.=) 1
      AND tombstone.consume_after OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
      AND (tombstone.consume_after, tombstone.id) OPERATOR(pg_catalog.>) (parent.consume_after, parent.id)
    OFFSET 0
)
