-- Takes a locked group's mark, schedule and suffix away, and says why in an event. user_id is NULL where no user asked for it.
-- Where another group has taken the old path meanwhile, "-" and five random characters are added to name and path.
CREATE OR REPLACE FUNCTION "sexton".restore_group(group_id bigint, user_id bigint, reason text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    suffix CONSTANT text := '-deletion_scheduled-' || restore_group.group_id;
    attempts CONSTANT integer := 10;
    own "public".groups;
    old_name text;
    old_path text;
    tail text := '';
    scheduled_by bigint;
BEGIN
    SELECT groups.* INTO own FROM "public".groups WHERE groups.id = restore_group.group_id;

    -- A name given to the group since then was meant. A bare suffix stays: a group needs a name.
    old_name := CASE WHEN pg_catalog.right(own.name, pg_catalog.length(suffix)) = suffix THEN coalesce(nullif(pg_catalog.left(own.name, -pg_catalog.length(suffix)), ''), own.name) ELSE own.name END;
    old_path := CASE WHEN pg_catalog.right(own.path, pg_catalog.length(suffix)) = suffix THEN coalesce(nullif(pg_catalog.left(own.path, -pg_catalog.length(suffix)), ''), own.path) ELSE own.path END;

    IF old_path <> own.path AND EXISTS (
        SELECT FROM "public".groups AS other
        WHERE other.path = old_path
          AND other.id <> own.id
          AND (other.parent_id = own.parent_id OR other.parent_id IS NULL AND own.parent_id IS NULL)
    ) THEN
        tail := '-' || "sexton".five_characters();
    END IF;

    FOR attempt IN 1..attempts LOOP
        BEGIN
            UPDATE "public".groups
            SET marked_for_deletion_on = NULL, name = old_name || tail, path = old_path || tail
            WHERE groups.id = own.id;

            EXIT;
        EXCEPTION
            WHEN unique_violation THEN
                -- Taken by the application's own notion of equal paths, or a moment ago.
                IF attempt = attempts THEN
                    RAISE;
                END IF;

                tail := '-' || "sexton".five_characters();
        END;
    END LOOP;

    DELETE FROM "public".group_deletion_schedules AS schedule
    WHERE schedule.group_id = own.id
    RETURNING schedule.user_id INTO scheduled_by;

    DELETE FROM "sexton".group_deletion_failures AS failure WHERE failure.group_id = own.id;

    INSERT INTO "sexton".events (kind, payload) VALUES (
        'group_restored',
        pg_catalog.jsonb_build_object(
            'group_id', own.id, 'parent_id', own.parent_id, 'path', old_path || tail,
            'user_id', restore_group.user_id, 'scheduled_by', scheduled_by, 'reason', restore_group.reason));
END;
$sexton$;

COMMENT ON FUNCTION "sexton".restore_group(bigint, bigint, text) IS 'Sexton: gives a group back its name, without mark and schedule';
