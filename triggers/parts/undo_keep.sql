-- A worker's batch sets sexton.run, and sexton.undo to the set that it keeps itself and the table of its rows; without the latter nothing is kept. Any
    -- session may set them, to the loss of its own undo alone: they group what is kept.
    IF (batch <> '' OR "undo_roots" AND coalesce(pg_catalog.current_setting('sexton.run', true), '') = '')
        AND batch <> pg_catalog.concat(origin, '/', root::pg_catalog.oid) AND EXISTS (SELECT FROM sexton_deleted)
    THEN
        kept_as := pg_catalog.nextval('"sexton".undo_ids');
        layout.id := "sexton".undo_layout(root, 'undo_exclude');
        SELECT known.* INTO layout FROM "sexton".undo_layouts AS known WHERE known.id = layout.id;
        -- In parts, since an array and a value have their limits.
        EXECUTE pg_catalog.format(
            'INSERT INTO "sexton".undo (id, number, layout, rows, left_out, origins, actor, c) '
            'SELECT $1, pg_catalog.nextval(''"sexton".undo_ids''), $2, pg_catalog.count(*) FILTER (WHERE gone.sexton_fits), '
            'pg_catalog.count(*) FILTER (WHERE NOT gone.sexton_fits), $3, $4, ARRAY[%s] '
            'FROM (SELECT sized.*, sized.sexton_size OPERATOR(pg_catalog.<=) $5 AS sexton_fits, '
            'pg_catalog.row_number() OVER () OPERATOR(pg_catalog./) 5000 AS sexton_part, '
            'pg_catalog.sum(least(sized.sexton_size, $5)) OVER (ROWS UNBOUNDED PRECEDING) OPERATOR(pg_catalog./) 67108864 AS sexton_bytes '
            'FROM (SELECT old.*, (%s)::pg_catalog.int8 AS sexton_size FROM sexton_deleted AS old) AS sized) AS gone '
            'GROUP BY gone.sexton_part, pg_catalog.trunc(gone.sexton_bytes)',
            pg_catalog.array_to_string(layout.terms, ', '), coalesce(nullif(pg_catalog.format(layout.size, 'old'), ''), '0'))
        USING kept_as, layout.id, CASE WHEN batch <> '' THEN ARRAY[origin] END, session_user::pg_catalog.text, 'undo_max_row'::pg_catalog.int8;
        origin := kept_as;
    END IF;
