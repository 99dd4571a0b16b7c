IF TG_RELID = 'table_oid'::pg_catalog.oid
        AND "sexton".is_as_installed('table_oid'::pg_catalog.regclass, 'recorded_name', 'key_numbers', 'key_names')
    THEN
        INSERT INTO "public".loose_foreign_keys_deleted_records (fully_qualified_table_name, parent_oid, "key_slot")
        SELECT 'recorded_name', 'table_oid', "typed_value"
        FROM sexton_deleted AS deleted
        WHERE "key_present" -- No row can refer to a key with a NULL.
            AND "key_typed";
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
