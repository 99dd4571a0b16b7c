-- Puts the triggers of a tracked root on partitions that a command has created, attached or changed.
--
-- It belongs to a superuser, since neither Sexton's role nor the role that creates a partition has all that CREATE TRIGGER needs: rights
-- on the partition, and on the function that the trigger runs. So no code of another role may run here:
--
--   - it reads catalogues only, and pins the settings by which names and literals are read;
--   - CREATE TRIGGER, ALTER TABLE ENABLE TRIGGER and GRANT run no code of a table's owner;
--   - they would fire the event triggers of others, with a superuser's rights where these have their caller's. Under
--     session_replication_role = replica the ordinary ones stay silent, this one too; while there is one that does not, nothing is done;
--   - what a trigger records comes from that of the root, which only a role with EXECUTE on its function can have made. That role
--     may be hostile: arguments become literals, all else is a constant, and a trigger of another shape than ours is not copied.
--
-- The application's command must not fail over this: each error becomes a WARNING, and a lock is waited for a second at most. The worker,
-- or `sexton triggers install`, then does what is left.
CREATE FUNCTION "sexton"."track_function"()
RETURNS event_trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = 'off'
SET standard_conforming_strings = 'on'
SET lock_timeout = '1s'
AS $sexton$
#variable_conflict use_column
DECLARE
    lacking pg_catalog.record;
    former pg_catalog.text;
BEGIN
    FOR lacking IN
        WITH RECURSIVE tables AS (
            -- ATTACH PARTITION names the table that is attached to: what is new is below it.
            SELECT command.objid AS relid, pg_catalog.pg_partition_root(command.objid)::pg_catalog.oid AS root
            FROM pg_catalog.pg_event_trigger_ddl_commands() AS command
            WHERE command.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND pg_catalog.pg_partition_root(command.objid) IS NOT NULL
            UNION
            SELECT below.inhrelid, t.root
            FROM tables AS t
            JOIN pg_catalog.pg_inherits AS below ON below.inhparent = t.relid
        ),
        models AS (
            SELECT tg.tgrelid AS root, tg.tgname AS name, tg.tgfoid AS function, tg.tgargs AS root_args, p.proname AS function_name,
                p.pronamespace AS space, p.proowner AS function_owner, a.args, pg_catalog.cardinality(a.args) - 1 AS last,
                -- As tables.sql expects them: 8 is AFTER DELETE, 34 is BEFORE TRUNCATE, both FOR EACH STATEMENT.
                tg.tgqual IS NULL AND tg.tgnewtable IS NULL AND CASE tg.tgname
                    WHEN 'sexton_track' THEN tg.tgtype = 8 AND tg.tgoldtable = 'sexton_deleted' AND tg.tgnargs = 4
                        AND p.proname ~ '^track_[0-9a-f]{12}_[0-9]+$'
                    ELSE tg.tgtype = 34 AND tg.tgoldtable IS NULL AND tg.tgnargs = 6 AND p.proname = 'track_truncate'
                        AND a.args[pg_catalog.cardinality(a.args) - 1] = ANY ('{reject,capture,ignore}')
                END AS ours,
                p.proowner = space.nspowner AS safe
            FROM pg_catalog.pg_trigger AS tg
            JOIN pg_catalog.pg_proc AS p ON p.oid = tg.tgfoid AND pg_catalog.starts_with(p.proname::pg_catalog.text, 'track_')
            JOIN pg_catalog.pg_namespace AS space ON space.oid = p.pronamespace AND space.nspname = 'sexton'
            -- Names may hold anything and come first; each argument is ended by a zero byte.
            CROSS JOIN LATERAL pg_catalog.string_to_array(pg_catalog.encode(tg.tgargs, 'escape'), E'\\000') AS a (args)
            WHERE tg.tgrelid IN (SELECT t.root FROM tables AS t) AND tg.tgname IN ('sexton_track', 'sexton_truncate') AND NOT tg.tgisinternal
        ),
        -- The root's key by name: partitions may have the columns in another order, and dropped ones before them. Its types are the ones that the
        -- function was written for.
        keys AS (
            SELECT m.root, pg_catalog.format('%I.%I', space.nspname, c.relname) AS recorded, server.identifier,
                pg_catalog.array_agg(a.attname ORDER BY k.place) AS names, m.args[m.last - 1] AS types,
                m.args[m.last] <> pg_catalog.concat(server.identifier, '/', m.root) AS stale
            FROM models AS m
            JOIN pg_catalog.pg_class AS c ON c.oid = m.root
            JOIN pg_catalog.pg_namespace AS space ON space.oid = c.relnamespace
            CROSS JOIN (SELECT system.system_identifier FROM pg_catalog.pg_control_system() AS system) AS server (identifier)
            CROSS JOIN LATERAL pg_catalog.unnest(m.args[m.last - 2]::pg_catalog.int2[]) WITH ORDINALITY AS k (number, place)
            JOIN pg_catalog.pg_attribute AS a ON a.attrelid = m.root AND a.attnum = k.number AND a.attnum > 0
            WHERE m.name = 'sexton_track'
            GROUP BY m.root, space.nspname, c.relname, server.identifier, m.args, m.last
        ),
        expected AS (
            SELECT t.relid, m.*, key.stale,
                ARRAY[key.recorded, own.numbers, key.types, pg_catalog.concat(key.identifier, '/', t.relid)]
                    || CASE m.name WHEN 'sexton_truncate' THEN ARRAY['{' || own.quoted || '}', m.args[m.last]] END AS arguments
            FROM tables AS t
            JOIN keys AS key ON key.root = t.root
            JOIN models AS m ON m.root = t.root
            CROSS JOIN LATERAL (
                SELECT pg_catalog.array_agg(a.attnum ORDER BY k.place)::pg_catalog.text AS numbers,
                    pg_catalog.string_agg('"' || pg_catalog.replace(pg_catalog.replace(k.name::pg_catalog.text, E'\\', E'\\\\'), '"', E'\\"') || '"', ','
                        ORDER BY k.place) AS quoted
                FROM pg_catalog.unnest(key.names) WITH ORDINALITY AS k (name, place)
                JOIN pg_catalog.pg_attribute AS a ON a.attrelid = t.relid AND a.attname = k.name AND a.attnum > 0
            ) AS own
            WHERE t.relid <> t.root
        )
        SELECT e.relid, e.name, e.function, e.function_name, pg_catalog.pg_get_userbyid(e.function_owner) AS function_owner,
            wanted.args AS wanted, c.relnamespace, space.nspname AS schema_name, c.relname AS table_name,
            pg_catalog.format('%I.%I', space.nspname, c.relname) AS display,
            (SELECT pg_catalog.string_agg(pg_catalog.quote_literal(a.arg), ', ' ORDER BY a.place)
                FROM pg_catalog.unnest(e.arguments) WITH ORDINALITY AS a (arg, place)) AS arguments,
            CASE
                WHEN c.relkind = 'f' THEN 'it is a foreign table, from which Postgres collects no deleted rows'
                WHEN e.ours IS NOT TRUE THEN 'the trigger of its root is not as triggers install makes it'
                WHEN e.safe IS NOT TRUE THEN 'the function of its root''s trigger does not belong to the owner of Sexton''s tables'
                WHEN e.stale THEN 'the trigger of its root was made for another table or server'
                WHEN installed.pronamespace <> e.space OR NOT pg_catalog.starts_with(installed.proname::pg_catalog.text, 'track_')
                    THEN pg_catalog.format('a trigger of the name %s runs %s, which is not ours', e.name, tg.tgfoid::pg_catalog.regproc)
                WHEN "loud"
                    THEN 'an event trigger fires always and has the rights of its caller, which would be those of a superuser'
            END AS obstacle
        FROM expected AS e
        JOIN pg_catalog.pg_class AS c ON c.oid = e.relid
        JOIN pg_catalog.pg_namespace AS space ON space.oid = c.relnamespace
        CROSS JOIN LATERAL (
            SELECT pg_catalog.string_agg(pg_catalog.convert_to(a.arg, pg_catalog.getdatabaseencoding()) || E'\\x00'::pg_catalog.bytea,
                ''::pg_catalog.bytea ORDER BY a.place)
            FROM pg_catalog.unnest(e.arguments) WITH ORDINALITY AS a (arg, place)
        ) AS wanted (args)
        LEFT JOIN pg_catalog.pg_trigger AS tg ON tg.tgrelid = e.relid AND tg.tgname = e.name AND NOT tg.tgisinternal
        LEFT JOIN pg_catalog.pg_proc AS installed ON installed.oid = tg.tgfoid
        -- The name in the first argument may be the former one of a renamed root, as long as the root's own trigger has that too: the
        -- command that renames it is not to lock all partitions.
        WHERE (tg.tgfoid = e.function AND tg.tgargs IN (wanted.args,
            pg_catalog.substr(e.root_args, 1, pg_catalog."position"(e.root_args, E'\\x00'))
                || pg_catalog.substr(wanted.args, pg_catalog."position"(wanted.args, E'\\x00') + 1))) IS NOT TRUE
        ORDER BY e.relid, e.name
    LOOP
        BEGIN
            IF lacking.obstacle IS NOT NULL THEN
                RAISE EXCEPTION '%', lacking.obstacle;
            END IF;
            -- Not by the function's SET clause: were its owner no superuser any more, the application's command would fail.
            former := pg_catalog.current_setting('session_replication_role');
            PERFORM pg_catalog.set_config('session_replication_role', 'replica', true);
            EXECUTE pg_catalog.format('CREATE OR REPLACE TRIGGER %I %s ON %I.%I %s FOR EACH STATEMENT EXECUTE FUNCTION %I.%I(%s)',
                lacking.name, CASE lacking.name WHEN 'sexton_track' THEN 'AFTER DELETE' ELSE 'BEFORE TRUNCATE' END,
                lacking.schema_name, lacking.table_name, CASE lacking.name WHEN 'sexton_track' THEN 'REFERENCING OLD TABLE AS sexton_deleted' END,
                'sexton', lacking.function_name, lacking.arguments);
            EXECUTE pg_catalog.format('ALTER TABLE ONLY %I.%I ENABLE ALWAYS TRIGGER %I',
                lacking.schema_name, lacking.table_name, lacking.name);
            -- The owner of the function reads the rows that a TRUNCATE removes.
            IF lacking.name = 'sexton_truncate' AND NOT pg_catalog.has_schema_privilege(lacking.function_owner, lacking.relnamespace, 'USAGE') THEN
                EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %I', lacking.schema_name, lacking.function_owner);
            END IF;
            IF lacking.name = 'sexton_truncate' AND NOT pg_catalog.has_table_privilege(lacking.function_owner, lacking.relid, 'SELECT') THEN
                EXECUTE pg_catalog.format('GRANT SELECT ON TABLE %I.%I TO %I', lacking.schema_name, lacking.table_name, lacking.function_owner);
            END IF;
            -- Its schema may have been renamed in between, and another one have its name now.
            IF NOT EXISTS (
                SELECT
                FROM pg_catalog.pg_trigger AS tg
                WHERE tg.tgrelid = lacking.relid AND tg.tgname = lacking.name AND tg.tgfoid = lacking.function AND tg.tgargs = lacking.wanted
            ) THEN
                RAISE EXCEPTION 'it has another name now';
            END IF;
            PERFORM pg_catalog.set_config('session_replication_role', former, true);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'Sexton: trigger % is not on partition %: %', lacking.name, lacking.display, SQLERRM
                USING HINT = 'Run sexton triggers install, or its deletions go unrecorded.';
        END;
    END LOOP;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'Sexton: no look for new partitions: %', SQLERRM USING HINT = 'Run sexton triggers status.';
END;
$sexton$;
