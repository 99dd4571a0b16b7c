-- A DELETE on a table also deletes rows of inheriting tables, and the transition table
-- does not show the table of a row. Deletions by foreign keys and by batches do not
-- include inheriting tables. Postgres runs this function at a trigger depth of 1 for
-- these deletions, and at a greater depth for a DELETE in a trigger of the application.
            IF (pg_catalog.pg_trigger_depth() > 1 OR NOT by_batch AND "undo_via" IS NULL) AND EXISTS (
                SELECT
                FROM pg_catalog.pg_inherits AS below
                JOIN pg_catalog.pg_class AS heir ON heir.oid = below.inhrelid AND NOT heir.relispartition
                WHERE below.inhparent = TG_RELID
            ) THEN
                RAISE EXCEPTION 'rows of inheriting tables cannot be distinguished' USING ERRCODE = 'SX007';
            END IF;
            IF own THEN
                IF kept.key = '{}' OR NOT kept.key <@ kept.columns THEN
                    RAISE EXCEPTION 'rows that the batch keeps cannot be recognized without the columns of the primary key' USING ERRCODE = 'SX007';
                END IF;
                SELECT pg_catalog.format(
                    'NOT (ARRAY[%s] = ANY (SELECT ARRAY[%s] FROM "sexton".undo AS known CROSS JOIN LATERAL ROWS FROM (%s) AS was (%s) '
                    'WHERE known.id = $1 AND NOT known.origins @> ARRAY[$1]))',
                    pg_catalog.string_agg(pg_catalog.format('pg_catalog.format(''%%s'', old.%I)', k.name), ', ' ORDER BY k.place),
                    pg_catalog.string_agg(pg_catalog.format('pg_catalog.format(''%%s'', was.%I)', k.name), ', ' ORDER BY k.place),
                    pg_catalog.string_agg(pg_catalog.format('pg_catalog.unnest(known.c[%s]::%s)', at.number, kept.arrays[at.number]), ', ' ORDER BY k.place),
                    pg_catalog.string_agg(pg_catalog.quote_ident(k.name), ', ' ORDER BY k.place))
                INTO STRICT apart
                FROM pg_catalog.unnest(kept.key) WITH ORDINALITY AS k (name, place)
                CROSS JOIN LATERAL (SELECT pg_catalog.array_position(kept.columns, k.name)) AS at (number);
            END IF;
            -- The rows are kept in parts, because arrays and values have a maximum size.
            -- A batch has kept the rows of its own statement itself, so only rows whose
            -- keys the batch has not kept are kept here.
            EXECUTE pg_catalog.format(
                'INSERT INTO "sexton".undo (id, number, layout, rows, left_out, origins, via, actor, c) '
                'SELECT $1, pg_catalog.nextval(''"sexton".undo_ids''), $2, pg_catalog.count(*) FILTER (WHERE gone.xmin), '
                'pg_catalog.count(*) FILTER (WHERE NOT gone.xmin), $3, $4, $5, ARRAY[%s] '
                'FROM (SELECT old.*, sized.size <= $6 AS xmin, '
                'pg_catalog.row_number() OVER () / 5000 AS cmin, '
                'pg_catalog.sum(least(sized.size, $6)) OVER (ROWS UNBOUNDED PRECEDING) / 67108864 AS cmax '
                'FROM sexton_deleted AS old CROSS JOIN LATERAL (SELECT (%s)::pg_catalog.int8 AS size OFFSET 0) AS sized WHERE %s) AS gone '
                'GROUP BY gone.cmin, pg_catalog.trunc(gone.cmax)',
                pg_catalog.array_to_string(kept.terms, ', '), coalesce(nullif(pg_catalog.format(kept.size, 'old'), ''), '0'), apart)
            USING origin, layout, CASE WHEN by_batch THEN ARRAY[origin] END, "undo_via", CASE WHEN NOT by_batch THEN session_user::pg_catalog.text END,
                'undo_max_row'::pg_catalog.int8;
