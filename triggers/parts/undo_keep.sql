BEGIN
        -- A worker's batch sets sexton.undo to the set of rows that it keeps itself, and
        -- to their table. The setting is ignored for roles that may not write kept rows.
        by_batch := CASE WHEN pg_catalog.current_setting('sexton.undo', true) ~ '^[0-9]{1,18}/[0-9]{1,10}$' THEN
            pg_catalog.has_table_privilege(
                coalesce(nullif(pg_catalog.current_setting('role'), 'none'), session_user::pg_catalog.text)::pg_catalog.name, '"sexton".undo', 'INSERT')
            ELSE false END;
        IF by_batch THEN
            origin := pg_catalog.split_part(pg_catalog.current_setting('sexton.undo', true), '/', 1);
        ELSIF coalesce(pg_catalog.current_setting('sexton.run', true), '') = '' OR pg_catalog.current_setting('sexton.undo', true) = 'users' THEN
            -- All rows that one command of a session deletes belong to one deletion,
            -- because native cascades call triggers in no reliable order. A batch that
            -- keeps no rows sets sexton.run but not sexton.undo. Any session may do the
            -- same, but its deletions then cannot be undone. No session can add rows to
            -- the deletion of another session. If rows of users are kept, the job that
            -- deletes users is treated like any other session.
            command := (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000)::pg_catalog.int8;
            origin := CASE WHEN pg_catalog.current_setting('sexton.deletion', true) ~ '^[0-9]{1,18}/[0-9]{1,18}$'
                AND pg_catalog.split_part(pg_catalog.current_setting('sexton.deletion', true), '/', 1) = command
                THEN pg_catalog.split_part(pg_catalog.current_setting('sexton.deletion', true), '/', 2) END;
            IF origin IS NOT NULL AND NOT EXISTS (
                SELECT FROM "sexton".undo AS known WHERE known.id = origin AND known.kept_at >= pg_catalog.now() AND known.actor = session_user::pg_catalog.text)
            THEN
                origin := NULL;
            END IF;
            IF origin IS NULL AND "undo_roots" THEN
                origin := pg_catalog.nextval('"sexton".undo_ids');
                PERFORM pg_catalog.set_config('sexton.deletion', pg_catalog.concat(command, '/', origin), true);
            END IF;
        END IF;

        -- The batch itself keeps the rows that its statement deletes from its table. A
        -- native cascade may have deleted further rows.
        own := by_batch AND pg_catalog.current_setting('sexton.undo', true) = pg_catalog.concat(origin, '/', root::pg_catalog.oid)
            AND pg_catalog.pg_trigger_depth() = 1;
        IF origin IS NOT NULL AND NOT (own AND "undo_whole") THEN
            layout := "sexton".undo_layout(root, 'undo_exclude');
            IF EXISTS (SELECT FROM "sexton".undo_state AS state WHERE state.full_since IS NOT NULL) THEN
                RAISE EXCEPTION 'the kept rows have reached their maximum size' USING ERRCODE = 'SX007';
            END IF;
            SELECT known.* INTO STRICT kept FROM "sexton".undo_layouts AS known WHERE known.id = layout;
            -- undo_statements
        END IF;
    EXCEPTION
        WHEN serialization_failure OR deadlock_detected THEN
            RAISE;
        WHEN OTHERS THEN
            -- The application's statement continues, and the deletion counts as
            -- incomplete.
            IF SQLSTATE <> 'SX007' THEN
                RAISE LOG 'Sexton could not keep rows deleted from %: SQLSTATE %', present, SQLSTATE;
            END IF;
            BEGIN
                IF origin IS NOT NULL AND NOT EXISTS (SELECT FROM "sexton".undo_layouts AS known WHERE known.id = layout) THEN
                    -- A layout without columns only names the table. The error has rolled
                    -- back the layout that undo_layout stored above, and would do so at
                    -- each deletion.
                    layout := (SELECT pg_catalog.min(known.id) FROM "sexton".undo_layouts AS known
                        WHERE known.relation = root AND known.signature = ''
                            AND known.name = present);
                    IF layout IS NULL THEN
                        INSERT INTO "sexton".undo_layouts (relation, name, signature, columns, numbers, types, arrays, terms, size, key, cascades)
                        VALUES (root, present, '', '{}', '{}', '{}', '{}', '{}', '', '{}', '[]')
                        RETURNING id INTO layout;
                    END IF;
                END IF;
                INSERT INTO "sexton".undo (id, number, layout, rows, left_out, origins, actor, via)
                SELECT origin, pg_catalog.nextval('"sexton".undo_ids'), layout, 0, pg_catalog.count(*) - "undo_known",
                    CASE WHEN by_batch THEN ARRAY[origin] END, CASE WHEN NOT by_batch THEN session_user::pg_catalog.text END, "undo_via"
                FROM sexton_deleted
                HAVING origin IS NOT NULL;
                IF NOT by_batch THEN
                    PERFORM pg_catalog.set_config('sexton.deletion', pg_catalog.concat(command, '/', origin), true);
                END IF;
            EXCEPTION WHEN OTHERS THEN
                origin := NULL;
            END;
    END;
