EXISTS (
    SELECT FROM unnest($3::pg_catalog.text[], $4::pg_catalog.timestamptz[], $5::bigint[]) AS parent (name, consume_after, id)
    WHERE EXISTS (
        SELECT FROM "public".loose_foreign_keys_deleted_records AS tombstone
        WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) parent.name
          AND tombstone.status OPERATOR(pg_catalog.=) 1
          AND tombstone.consume_after OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
          AND (tombstone.consume_after, tombstone.id) OPERATOR(pg_catalog.>) (parent.consume_after, parent.id)
        ORDER BY tombstone.consume_after, tombstone.id
        OFFSET 0
    )
)
