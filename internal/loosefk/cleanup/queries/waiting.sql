EXISTS (
    SELECT FROM pg_catalog.unnest($3::pg_catalog.text[]) AS parent (name)
    WHERE EXISTS (
        SELECT FROM "public".loose_foreign_keys_deleted_records AS tombstone
        WHERE tombstone.fully_qualified_table_name = parent.name
          AND tombstone.status = 1
          AND tombstone.consume_after <= pg_catalog.statement_timestamp()
        ORDER BY tombstone.consume_after, tombstone.id
        OFFSET 0
    )
)