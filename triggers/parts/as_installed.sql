IF "key_unchanged"
        AND TG_RELID::pg_catalog.regclass::pg_catalog.text OPERATOR(pg_catalog.=) TG_ARGV[0]
        AND coalesce(pg_catalog.pg_partition_root(TG_RELID), TG_RELID) OPERATOR(pg_catalog.=) TG_RELID
    THEN
        INSERT INTO "public".loose_foreign_keys_deleted_records (fully_qualified_table_name, parent_oid, "key_slot")
        SELECT TG_ARGV[0], TG_RELID, "typed_value"
        FROM sexton_deleted AS gone
        WHERE "key_present" -- Nothing can refer to a key with NULL.
            AND "key_typed";
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
