-- What the batch's own statement takes from its table it keeps itself, unless a native cascade took more along: these rows are counted. What triggers
    -- take in statements of their own is kept. A batch that keeps nothing sets sexton.run alone; any session may, to the loss of its own undo.
    IF batch = pg_catalog.concat(origin, '/', root::pg_catalog.oid) AND pg_catalog.pg_trigger_depth() = 1 THEN
        INSERT INTO "sexton".undo (id, number, layout, rows, left_out, origins)
        SELECT origin, pg_catalog.nextval('"sexton".undo_ids'), known.layout, 0, gone.total - pg_catalog.sum(known.rows + known.left_out), known.origins
        FROM "sexton".undo AS known
        CROSS JOIN (SELECT pg_catalog.count(*) AS total FROM sexton_deleted) AS gone
        WHERE known.id = origin AND known.changed IS NULL
        GROUP BY known.layout, known.origins, gone.total
        HAVING gone.total > pg_catalog.sum(known.rows + known.left_out);
    ELSIF (batch <> '' OR "undo_roots" AND coalesce(pg_catalog.current_setting('sexton.run', true), '') = '')
        AND EXISTS (SELECT FROM sexton_deleted)
    THEN
        kept_as := pg_catalog.nextval('"sexton".undo_ids');
        layout.id := "sexton".undo_layout(root, 'undo_exclude');
        SELECT known.* INTO layout FROM "sexton".undo_layouts AS known WHERE known.id = layout.id;
        BEGIN
            -- In parts, since an array and a value have their limits.
            EXECUTE pg_catalog.format(
                'INSERT INTO "sexton".undo (id, number, layout, rows, left_out, origins, actor, c) '
                'SELECT $1, pg_catalog.nextval(''"sexton".undo_ids''), $2, pg_catalog.count(*) FILTER (WHERE gone.sexton_fits), '
                'pg_catalog.count(*) FILTER (WHERE NOT gone.sexton_fits), $3, $4, ARRAY[%s] '
                'FROM (SELECT old.*, sized.size OPERATOR(pg_catalog.<=) $5 AS sexton_fits, '
                'pg_catalog.row_number() OVER () OPERATOR(pg_catalog./) 5000 AS sexton_part, '
                'pg_catalog.sum(least(sized.size, $5)) OVER (ROWS UNBOUNDED PRECEDING) OPERATOR(pg_catalog./) 67108864 AS sexton_bytes '
                'FROM sexton_deleted AS old CROSS JOIN LATERAL (SELECT (%s)::pg_catalog.int8 AS size OFFSET 0) AS sized) AS gone '
                'GROUP BY gone.sexton_part, pg_catalog.trunc(gone.sexton_bytes)',
                pg_catalog.array_to_string(layout.terms, ', '), coalesce(nullif(pg_catalog.format(layout.size, 'old'), ''), '0'))
            USING kept_as, layout.id, CASE WHEN batch <> '' THEN ARRAY[origin] END, session_user::pg_catalog.text, 'undo_max_row'::pg_catalog.int8;
        EXCEPTION
            WHEN serialization_failure OR deadlock_detected THEN
                RAISE;
            WHEN OTHERS THEN
                -- The application's DELETE goes on, and the deletion counts as incomplete.
                RAISE LOG 'Sexton could not keep the rows deleted from %: SQLSTATE %', present, SQLSTATE;
                INSERT INTO "sexton".undo (id, number, layout, rows, left_out, origins, actor)
                SELECT kept_as, pg_catalog.nextval('"sexton".undo_ids'), layout.id, 0, pg_catalog.count(*),
                    CASE WHEN batch <> '' THEN ARRAY[origin] END, session_user::pg_catalog.text
                FROM sexton_deleted;
        END;
        origin := kept_as;
    END IF;
