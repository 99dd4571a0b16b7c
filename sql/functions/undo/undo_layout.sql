-- Returns the id of the current layout of a table without the excluded columns
-- (table.column or schema.table.column), and stores the layout if it is new.
--
-- Generated columns are left out, because a restored row computes them again. Type names
-- include the schema, because rows are restored under the search_path of the
-- application's triggers. The terms are SQL expressions over a relation named gone, which
-- has the deleted rows. Its column xmin is true for each row that is kept. It has the
-- name of a system column because no column of a table can have that name. Casts to text
-- may be user code, so only output functions convert values to text. The size of a row is
-- the size of its uncompressed values. Equal layouts may be stored twice, because a
-- unique index would make a DELETE wait for another transaction.
CREATE OR REPLACE FUNCTION "sexton".undo_layout(of_table oid, exclude text[])
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = 'off'
SET enable_seqscan = 'off'
AS $sexton$
DECLARE
    -- Values of these types are kept as texts, because array_out drops the encoding of
    -- xml, and writes vectors in a form that their input functions do not read.
    ownform CONSTANT pg_catalog.regtype[] := '{xml,int2vector,oidvector}';
    -- tree has the table and its partitions, which may have foreign keys of their own.
    -- pg_partition_tree would lock each partition.
    tree pg_catalog.oid[] := ARRAY[of_table];
    made "sexton".undo_layouts;
BEGIN
    made.name := of_table::pg_catalog.regclass::pg_catalog.text;
    IF EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = of_table AND c.relkind = 'p') THEN
        WITH RECURSIVE parts AS (
            SELECT of_table AS oid
            UNION ALL
            SELECT below.inhrelid FROM parts JOIN pg_catalog.pg_inherits AS below ON below.inhparent = parts.oid
        )
        SELECT pg_catalog.array_agg(parts.oid) INTO STRICT tree FROM parts;
    END IF;
    made.cascades := coalesce((
        SELECT pg_catalog.jsonb_agg(alike.key ORDER BY alike.first)
        FROM (
            -- Partitions may have equal foreign keys of their own, which are stored once.
            SELECT keys.key, pg_catalog.min(keys.oid) AS first
            FROM (
                SELECT f.oid, pg_catalog.jsonb_build_object(
                    'parent', coalesce(pg_catalog.pg_partition_root(f.confrelid)::pg_catalog.oid, f.confrelid)::pg_catalog.int8,
                    'via', ARRAY(
                        SELECT own.attname::pg_catalog.text FROM pg_catalog.unnest(f.conkey) WITH ORDINALITY AS place (number, at)
                        JOIN pg_catalog.pg_attribute AS own ON own.attrelid = f.conrelid AND own.attnum = place.number ORDER BY place.at),
                    'keys', ARRAY(
                        SELECT other.attname::pg_catalog.text FROM pg_catalog.unnest(f.confkey) WITH ORDINALITY AS place (number, at)
                        JOIN pg_catalog.pg_attribute AS other ON other.attrelid = f.confrelid AND other.attnum = place.number ORDER BY place.at)
                ) AS key
                FROM pg_catalog.pg_constraint AS f
                WHERE f.conrelid = ANY (tree) AND f.contype = 'f' AND f.confdeltype = 'c' AND f.conparentid = 0
            ) AS keys
            GROUP BY keys.key
        ) AS alike
    ), '[]');
    SELECT pg_catalog.md5(ROW(1, made.name, exclude, made.cascades,
        ARRAY(SELECT ROW(i.indkey, i.indnkeyatts)::pg_catalog.text FROM pg_catalog.pg_index AS i WHERE i.indrelid = of_table AND i.indisprimary),
        pg_catalog.array_agg(
            ROW(a.attnum, a.attname, a.atttypid, a.atttypid::pg_catalog.regtype, a.attlen, a.attstorage, a.attgenerated)::pg_catalog.text ORDER BY a.attnum
        ))::pg_catalog.text)
    INTO made.signature
    FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = of_table AND a.attnum > 0 AND NOT a.attisdropped;

    SELECT l.id INTO made.id FROM "sexton".undo_layouts AS l WHERE l.relation = of_table AND l.signature = made.signature
    ORDER BY l.id LIMIT 1;
    IF made.id IS NOT NULL THEN
        RETURN made.id;
    END IF;

    SELECT
        pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY a.attnum),
        pg_catalog.array_agg(a.attnum ORDER BY a.attnum),
        pg_catalog.array_agg(pg_catalog.format('%I.%I', tn.nspname, t.typname) ORDER BY a.attnum),
        pg_catalog.array_agg(
            CASE WHEN t.typcategory = 'A' OR t.typarray = 0 OR t.oid = ANY (ownform) THEN 'pg_catalog.text[]'
                ELSE pg_catalog.format('%I.%I', an.nspname, ta.typname) END ORDER BY a.attnum),
        pg_catalog.array_agg(pg_catalog.format(
            CASE
                WHEN t.oid = ANY (ownform) THEN '"sexton".undo_text(pg_catalog.array_agg(gone.%I::pg_catalog.text) FILTER (WHERE gone.xmin))'
                WHEN t.typcategory = 'A' THEN '"sexton".undo_text(pg_catalog.array_agg("sexton".undo_text(gone.%I)) FILTER (WHERE gone.xmin))'
                WHEN t.typarray = 0 THEN '"sexton".undo_text(pg_catalog.array_agg(CASE WHEN pg_catalog.num_nulls(gone.%1$I) OPERATOR(pg_catalog.=) 0 '
                    'THEN pg_catalog.format(''%%s'', gone.%1$I) END) FILTER (WHERE gone.xmin))'
                ELSE '"sexton".undo_text(pg_catalog.array_agg(gone.%I) FILTER (WHERE gone.xmin))'
            END, a.attname) ORDER BY a.attnum),
        coalesce(pg_catalog.string_agg(pg_catalog.format(
            CASE WHEN coalesce(nullif(t.typbasetype, 0), t.oid) = ANY ('{text,varchar,bpchar,bytea}'::pg_catalog.regtype[])
                THEN 'coalesce(pg_catalog.octet_length(%%1$s.%s)::pg_catalog.int8, 0)'
                ELSE 'coalesce(pg_catalog.octet_length(pg_catalog.format(''%%%%s'', %%1$s.%s))::pg_catalog.int8, 0)' END,
            pg_catalog.replace(pg_catalog.quote_ident(a.attname), '%', '%%')),
            ' OPERATOR(pg_catalog.+) ' ORDER BY a.attnum) FILTER (WHERE a.attlen = -1 AND a.attstorage <> 'p'), ''),
        coalesce((
            SELECT pg_catalog.array_agg(k.attname::pg_catalog.text ORDER BY place.at)
            FROM pg_catalog.pg_index AS i
            CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY AS place (number, at)
            JOIN pg_catalog.pg_attribute AS k ON k.attrelid = i.indrelid AND k.attnum = place.number
            WHERE i.indrelid = of_table AND i.indisprimary AND place.at <= i.indnkeyatts
        ), '{}')
    INTO made.columns, made.numbers, made.types, made.arrays, made.terms, made.size, made.key
    FROM pg_catalog.pg_attribute AS a
    JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
    JOIN pg_catalog.pg_namespace AS tn ON tn.oid = t.typnamespace
    LEFT JOIN pg_catalog.pg_type AS ta ON ta.oid = t.typarray
    LEFT JOIN pg_catalog.pg_namespace AS an ON an.oid = ta.typnamespace
    JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE a.attrelid = of_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
      AND NOT pg_catalog.concat(c.relname, '.', a.attname) = ANY (exclude)
      AND NOT pg_catalog.concat(n.nspname, '.', c.relname, '.', a.attname) = ANY (exclude);

    INSERT INTO "sexton".undo_layouts (relation, name, signature, columns, numbers, types, arrays, terms, size, key, cascades)
    VALUES (of_table, made.name, made.signature, made.columns, made.numbers, made.types, made.arrays, made.terms, made.size, made.key, made.cascades)
    RETURNING id INTO made.id;

    RETURN made.id;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".undo_layout(oid, text[]) IS 'Sexton: finds or stores the layout of a table whose rows are kept';
