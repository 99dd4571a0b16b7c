EXISTS (
    SELECT FROM pg_catalog.unnest($3::pg_catalog.text[]) AS parent (name)
    WHERE EXISTS (
        SELECT FROM "public".loose_foreign_keys_deleted_records AS tombstone
        WHERE tombstone.fully_qualified_table_name OPERATOR(pg_catalog.=) parent.name
          AND tombstone.status OPERATOR(pg_catalog.=) 1
          AND tombstone.consume_after OPERATOR(pg_catalog.<=) pg_catalog.statement_timestamp()
        ORDER BY tombstone.consume_after, tombstone.id
        OFFSET 0
    )
)