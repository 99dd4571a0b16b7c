FOR one IN
                -- If the foreign key refers to a partition, parent is the root, because
                -- rows of a partition are kept as rows of its root.
                SELECT coalesce(pg_catalog.pg_partition_root(key.confrelid)::pg_catalog.oid, key.confrelid) AS parent,
                    key.confdeltype = 'd' AS defaults, via.names AS via, keys.names AS keys, changed.names AS changed,
                    kept.key || ARRAY(SELECT v FROM pg_catalog.unnest(via.names) AS v WHERE v <> ALL (kept.key)) AS fields
                FROM pg_catalog.pg_constraint AS key
                CROSS JOIN LATERAL (
                    SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.place) FROM pg_catalog.unnest(key.conkey) WITH ORDINALITY AS k (number, place)
                    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = key.conrelid AND a.attnum = k.number
                ) AS via (names)
                CROSS JOIN LATERAL (
                    SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.place) FROM pg_catalog.unnest(key.confkey) WITH ORDINALITY AS k (number, place)
                    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = key.confrelid AND a.attnum = k.number
                ) AS keys (names)
                -- Since Postgres 15, ON DELETE SET may change only some columns of the
                -- foreign key.
                CROSS JOIN LATERAL (SELECT pg_catalog.to_jsonb(key) -> 'confdelsetcols') AS listed (numbers)
                CROSS JOIN LATERAL (
                    SELECT pg_catalog.array_agg(a.attname::pg_catalog.text) FROM pg_catalog.pg_attribute AS a
                    WHERE a.attrelid = key.conrelid AND CASE WHEN pg_catalog.jsonb_typeof(listed.numbers) = 'array'
                        THEN listed.numbers @> pg_catalog.to_jsonb(a.attnum) ELSE a.attnum = ANY (key.conkey) END
                ) AS changed (names)
                WHERE key.conrelid = TG_RELID AND key.contype = 'f' AND key.confdeltype IN ('n', 'd') AND key.conparentid = 0
            LOOP
                IF kept.key = '{}' OR NOT one.fields <@ kept.columns THEN
                    RAISE EXCEPTION 'changed rows cannot be restored without the columns of the primary key and the foreign key' USING ERRCODE = 'SX007';
                END IF;
                EXECUTE (
                    SELECT pg_catalog.format(
                        'INSERT INTO "sexton".undo (id, number, layout, rows, origins, via, keys, parent, fields, changed, actor, written, c) '
                        'SELECT $1, pg_catalog.nextval(''"sexton".undo_ids''), $2, pg_catalog.count(*), $3, $4, $5, $6, $7, $8, $9, gone.cmax, ARRAY[%s] '
                        'FROM (SELECT once.*, true AS xmin, pg_catalog.row_number() OVER () / 5000 AS cmin '
                        'FROM (SELECT DISTINCT ON (%2$s) old.*, %6$s AS cmax FROM sexton_deleted AS old '
                        'JOIN sexton_changed AS now ON ARRAY[%2$s] = ARRAY[%4$s] '
                        'WHERE pg_catalog.num_nulls(%3$s) = 0 AND %5$s) AS once) AS gone GROUP BY gone.cmin, gone.cmax',
                        (SELECT pg_catalog.string_agg(kept.terms[pg_catalog.array_position(kept.columns, f.name)], ', ' ORDER BY f.place)
                            FROM pg_catalog.unnest(one.fields) WITH ORDINALITY AS f (name, place)),
                        (SELECT pg_catalog.string_agg(pg_catalog.format('pg_catalog.format(''%%s'', old.%I)', f.name), ', ' ORDER BY f.place)
                            FROM pg_catalog.unnest(kept.key) WITH ORDINALITY AS f (name, place)),
                        (SELECT pg_catalog.string_agg(pg_catalog.format('old.%I', name), ', ') FROM pg_catalog.unnest(one.via) AS name),
                        (SELECT pg_catalog.string_agg(pg_catalog.format('pg_catalog.format(''%%s'', now.%I)', f.name), ', ' ORDER BY f.place)
                            FROM pg_catalog.unnest(kept.key) WITH ORDINALITY AS f (name, place)),
                        CASE WHEN one.defaults THEN (
                            SELECT pg_catalog.format('(%s)', pg_catalog.string_agg(pg_catalog.format('pg_catalog.num_nulls(now.%1$I) <> '
                                'pg_catalog.num_nulls(old.%1$I) OR pg_catalog.format(''%%s'', now.%1$I) <> pg_catalog.format(''%%s'', old.%1$I)',
                                name), ' OR ')) FROM pg_catalog.unnest(one.changed) AS name)
                            ELSE (SELECT pg_catalog.format('pg_catalog.num_nonnulls(%s) = 0',
                                pg_catalog.string_agg(pg_catalog.format('now.%I', name), ', ')) FROM pg_catalog.unnest(one.changed) AS name) END,
                        -- The values of several columns are stored as the text of an
                        -- array. For a type that has an array type, that text is the same
                        -- in all sessions.
                        CASE WHEN one.defaults THEN (
                            SELECT pg_catalog.format(CASE WHEN pg_catalog.count(*) = 1 THEN '%s' ELSE 'ARRAY[%s]::pg_catalog.text' END, pg_catalog.string_agg(
                                pg_catalog.format('CASE WHEN pg_catalog.num_nulls(now.%1$I) = 0 THEN %2$s END', c.name, pg_catalog.format(
                                    CASE WHEN kept.arrays[pg_catalog.array_position(kept.columns, c.name)] = 'pg_catalog.text[]'
                                        THEN 'pg_catalog.format(''%%s'', now.%I)'
                                        ELSE 'pg_catalog.array_to_string("sexton".undo_text(ARRAY[now.%I])::pg_catalog.text[], '','')' END,
                                    c.name)), ', ' ORDER BY c.place)) FROM pg_catalog.unnest(one.changed) WITH ORDINALITY AS c (name, place))
                            ELSE 'NULL::pg_catalog.text' END))
                USING origin, layout, CASE WHEN by_batch THEN ARRAY[origin] END, one.via, one.keys, one.parent, one.fields, one.changed,
                    CASE WHEN NOT by_batch THEN session_user::pg_catalog.text END;
            END LOOP;
