-- A worker's batch sets it to the set that it keeps itself and the table of its rows. It counts only for roles that may write kept rows.
    batch CONSTANT pg_catalog.text := coalesce(CASE
        WHEN pg_catalog.current_setting('sexton.undo', true) OPERATOR(pg_catalog.~) '^[0-9]{1,18}/[0-9]{1,10}$'
        THEN CASE
            WHEN pg_catalog.has_table_privilege(
                coalesce(nullif(pg_catalog.current_setting('role'), 'none'), session_user::pg_catalog.text)::pg_catalog.name, '"sexton".undo', 'INSERT')
            THEN pg_catalog.current_setting('sexton.undo')
        END
    END, '');
    origin pg_catalog.int8 := nullif(pg_catalog.split_part(batch, '/', 1), '');
    kept_as pg_catalog.int8;
    layout "sexton".undo_layouts;
