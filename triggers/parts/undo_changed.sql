FOR one IN
                SELECT key.confrelid AS parent, via.names AS via, keys.names AS keys, changed.names AS changed,
                    kept.key OPERATOR(pg_catalog.||) ARRAY(SELECT v FROM pg_catalog.unnest(via.names) AS v WHERE v <> ALL (kept.key)) AS fields
                FROM pg_catalog.pg_constraint AS key
                CROSS JOIN LATERAL (
                    SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.place) FROM pg_catalog.unnest(key.conkey) WITH ORDINALITY AS k (number, place)
                    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = key.conrelid AND a.attnum = k.number
                ) AS via (names)
                CROSS JOIN LATERAL (
                    SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.place) FROM pg_catalog.unnest(key.confkey) WITH ORDINALITY AS k (number, place)
                    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = key.confrelid AND a.attnum = k.number
                ) AS keys (names)
                -- From Postgres 15 on some of the columns alone may become NULL.
                CROSS JOIN LATERAL (SELECT pg_catalog.to_jsonb(key) OPERATOR(pg_catalog.->) 'confdelsetcols') AS listed (numbers)
                CROSS JOIN LATERAL (
                    SELECT pg_catalog.array_agg(a.attname::pg_catalog.text) FROM pg_catalog.pg_attribute AS a
                    WHERE a.attrelid = key.conrelid AND CASE WHEN pg_catalog.jsonb_typeof(listed.numbers) = 'array'
                        THEN listed.numbers OPERATOR(pg_catalog.@>) pg_catalog.to_jsonb(a.attnum) ELSE a.attnum = ANY (key.conkey) END
                ) AS changed (names)
                WHERE key.conrelid = TG_RELID AND key.contype = 'f' AND key.confdeltype = 'n' AND key.conparentid = 0
            LOOP
                IF kept.key OPERATOR(pg_catalog.=) '{}' OR NOT one.fields OPERATOR(pg_catalog.<@) kept.columns THEN
                    RAISE EXCEPTION 'without its key and its reference no value can be given back' USING ERRCODE = 'SX007';
                END IF;
                EXECUTE (
                    SELECT pg_catalog.format(
                        'INSERT INTO "sexton".undo (id, number, layout, rows, origins, via, keys, parent, fields, changed, actor, c) '
                        'SELECT $1, pg_catalog.nextval(''"sexton".undo_ids''), $2, pg_catalog.count(*), $3, $4, $5, $6, $7, $8, $9, ARRAY[%s] '
                        'FROM (SELECT once.*, true AS xmin, pg_catalog.row_number() OVER () OPERATOR(pg_catalog./) 5000 AS cmin '
                        'FROM (SELECT DISTINCT ON (%2$s) old.* FROM sexton_deleted AS old WHERE pg_catalog.num_nulls(%3$s) OPERATOR(pg_catalog.=) 0 '
                        'AND ARRAY[%2$s] OPERATOR(pg_catalog.=) ANY (SELECT ARRAY[%4$s] FROM sexton_changed AS now '
                        'WHERE pg_catalog.num_nonnulls(%5$s) OPERATOR(pg_catalog.=) 0)) AS once) AS gone GROUP BY gone.cmin',
                        (SELECT pg_catalog.string_agg(kept.terms[pg_catalog.array_position(kept.columns, f.name)], ', ' ORDER BY f.place)
                            FROM pg_catalog.unnest(one.fields) WITH ORDINALITY AS f (name, place)),
                        (SELECT pg_catalog.string_agg(pg_catalog.format('pg_catalog.format(''%%s'', old.%I)', f.name), ', ' ORDER BY f.place)
                            FROM pg_catalog.unnest(kept.key) WITH ORDINALITY AS f (name, place)),
                        (SELECT pg_catalog.string_agg(pg_catalog.format('old.%I', name), ', ') FROM pg_catalog.unnest(one.via) AS name),
                        (SELECT pg_catalog.string_agg(pg_catalog.format('pg_catalog.format(''%%s'', now.%I)', f.name), ', ' ORDER BY f.place)
                            FROM pg_catalog.unnest(kept.key) WITH ORDINALITY AS f (name, place)),
                        (SELECT pg_catalog.string_agg(pg_catalog.format('now.%I', name), ', ') FROM pg_catalog.unnest(one.changed) AS name)))
                USING origin, layout, CASE WHEN by_batch THEN ARRAY[origin] END, one.via, one.keys, one.parent, one.fields, one.changed,
                    CASE WHEN NOT by_batch THEN session_user::pg_catalog.text END;
            END LOOP;
