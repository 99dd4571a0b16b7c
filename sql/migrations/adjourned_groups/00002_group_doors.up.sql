-- What an application, or somebody at the command line, may ask for a group.

-- Locks a group for one of the doors, and refuses on behalf of all: SX020 for a group that does not exist, SX021 for a
-- user who may not remove it.
CREATE FUNCTION "sexton".open_group_door(door text, group_id bigint, user_id bigint)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    -- As strong as the renaming needs it: a weaker lock could deadlock when it is raised.
    PERFORM FROM "public".groups WHERE groups.id = open_group_door.group_id FOR UPDATE;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX020',
            MESSAGE = pg_catalog.format('%s: there is no group %s', door, coalesce(open_group_door.group_id::pg_catalog.text, 'NULL'));
    ELSIF "sexton".may_remove_group(open_group_door.user_id, open_group_door.group_id) IS NOT TRUE THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX021',
            MESSAGE = pg_catalog.format('%s %s: user %s may not remove it', door, open_group_door.group_id,
                coalesce(open_group_door.user_id::pg_catalog.text, 'NULL')),
            HINT = 'Administrators may, and owners of the group or of one above it who are not blocked.';
    END IF;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".open_group_door(text, bigint, bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".open_group_door(text, bigint, bigint) IS 'Sexton: locks a group and checks who asks';

-- Five random letters and digits, for a path that is taken.
CREATE FUNCTION "sexton".five_characters()
RETURNS text
LANGUAGE sql
VOLATILE
SET search_path = pg_catalog, pg_temp
AS $sexton$
    SELECT pg_catalog.string_agg(pg_catalog.substr('abcdefghijklmnopqrstuvwxyz0123456789', 1 + pg_catalog.floor(pg_catalog.random() * 36)::integer, 1), '')
    FROM pg_catalog.generate_series(1, 5);
$sexton$;

REVOKE ALL ON FUNCTION "sexton".five_characters() FROM PUBLIC;

COMMENT ON FUNCTION "sexton".five_characters() IS 'Sexton: random letters and digits for a path that is taken';

-- Asks for a group's deletion on a user's behalf: marks the group and renames it, so that its name and path are free, in
-- the caller's transaction. A group whose longer name or path the table would refuse keeps both. Returns true where it has done so, and false where the group is scheduled already, or is
-- being destroyed with one above it; then nothing changes but whose request it is, where the user who made it may not remove
-- the group any more.
--
-- Raises SX020 for a group that does not exist and SX021 for a user who may not remove it.
--
-- It may be called for thousands of groups in one transaction, whose tables were empty when somebody counted them last: the
-- whole of such a table would be read for each.
CREATE FUNCTION "sexton".schedule_group_deletion(group_id bigint, user_id bigint)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET enable_seqscan = off
AS $sexton$
DECLARE
    today CONSTANT date := (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date;
    suffix text := '-deletion_scheduled-' || schedule_group_deletion.group_id;
    attempts CONSTANT integer := 10;
    own_name text;
    own_path text;
    marked date;
    tail text := '';
BEGIN
    PERFORM "sexton".open_group_door('schedule the deletion of group', schedule_group_deletion.group_id, schedule_group_deletion.user_id);

    SELECT groups.name, groups.path, groups.marked_for_deletion_on INTO own_name, own_path, marked
    FROM "public".groups
    WHERE groups.id = schedule_group_deletion.group_id;

    IF "sexton".group_destruction_above(schedule_group_deletion.group_id) IS NOT NULL THEN
        RETURN false;
    ELSIF marked IS NOT NULL AND EXISTS (
        SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = schedule_group_deletion.group_id
    ) THEN
        -- Or the group would be restored in the end, although somebody who may remove it has asked for its deletion.
        UPDATE "public".group_deletion_schedules AS schedule
        SET user_id = schedule_group_deletion.user_id
        WHERE schedule.group_id = schedule_group_deletion.group_id
          AND "sexton".may_remove_group(schedule.user_id, schedule.group_id) IS NOT TRUE;

        RETURN false;
    END IF;

    FOR attempt IN 1..attempts LOOP
        BEGIN
            UPDATE "public".groups
            SET marked_for_deletion_on = today,
                name = CASE WHEN pg_catalog.right(own_name, pg_catalog.length(suffix)) = suffix THEN own_name ELSE own_name || tail || suffix END,
                path = CASE WHEN pg_catalog.right(own_path, pg_catalog.length(suffix)) = suffix THEN own_path ELSE own_path || tail || suffix END
            WHERE groups.id = schedule_group_deletion.group_id;

            EXIT;
        EXCEPTION
            WHEN unique_violation THEN
                -- Some other group was given that very path by hand.
                IF attempt = attempts THEN
                    RAISE;
                END IF;

                tail := '-' || "sexton".five_characters();
            WHEN string_data_right_truncation OR check_violation THEN
                -- No room for the suffix. A name that stays taken is no reason to keep the group.
                IF suffix = '' OR attempt = attempts THEN
                    RAISE;
                END IF;

                tail := '';
                suffix := '';
        END;
    END LOOP;

    -- The caller holds the group's lock, so there is no race between the two statements.
    UPDATE "public".group_deletion_schedules AS schedule
    SET user_id = schedule_group_deletion.user_id, marked_for_deletion_on = today
    WHERE schedule.group_id = schedule_group_deletion.group_id;

    IF NOT FOUND THEN
        INSERT INTO "public".group_deletion_schedules (group_id, user_id, marked_for_deletion_on)
        VALUES (schedule_group_deletion.group_id, schedule_group_deletion.user_id, today);
    END IF;

    INSERT INTO "sexton".events (kind, payload)
    SELECT 'group_deletion_scheduled', pg_catalog.jsonb_build_object(
        'group_id', groups.id, 'parent_id', groups.parent_id, 'path', groups.path,
        'user_id', schedule_group_deletion.user_id, 'marked_for_deletion_on', today)
    FROM "public".groups
    WHERE groups.id = schedule_group_deletion.group_id;

    RETURN true;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".schedule_group_deletion(bigint, bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".schedule_group_deletion(bigint, bigint) IS 'Sexton: marks a group for its deletion';

-- Takes a locked group's mark, schedule and suffix away, and says why in an event. user_id is NULL where no user asked for it.
-- Where another group has taken the old path meanwhile, "-" and five random characters are added to name and path.
CREATE FUNCTION "sexton".restore_group(group_id bigint, user_id bigint, reason text)
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

REVOKE ALL ON FUNCTION "sexton".restore_group(bigint, bigint, text) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".restore_group(bigint, bigint, text) IS 'Sexton: gives a group back its name, without mark and schedule';

-- Keeps a group from staying marked for ever when its schedule goes with the user who made it, by that user's native cascade
-- or by a batch of the user's deletion: in the same transaction the initiator of the user's deletion takes the schedule over, if
-- that user may remove the group, and otherwise the group is restored. The queue of users says who the initiator is; a cascade
-- that began at a plain DELETE has none.
CREATE FUNCTION "sexton".group_schedule_lost()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    initiator bigint;
    leaves boolean := false;
BEGIN
    IF "sexton".application_table('users_ghost_user_migrations') THEN
        SELECT job.initiator_user_id INTO initiator FROM "public".users_ghost_user_migrations AS job WHERE job.user_id = OLD.user_id;
        leaves := FOUND;
    END IF;

    -- An application that deletes the schedule of a user who stays has its own reason.
    IF NOT leaves AND EXISTS (SELECT FROM "public".users WHERE users.id = OLD.user_id) THEN
        RETURN NULL;
    END IF;

    PERFORM FROM "public".groups WHERE groups.id = OLD.group_id AND groups.marked_for_deletion_on IS NOT NULL FOR UPDATE;

    -- A destruction that has begun goes on without a schedule. One that is there by now is the application's.
    IF NOT FOUND
        OR "sexton".group_destruction_above(OLD.group_id) IS NOT NULL
        OR EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = OLD.group_id)
    THEN
        RETURN NULL;
    ELSIF initiator IS NULL OR "sexton".may_remove_group(initiator, OLD.group_id) IS NOT TRUE THEN
        PERFORM "sexton".restore_group(OLD.group_id, NULL, 'user_missing');
        RETURN NULL;
    END IF;

    INSERT INTO "public".group_deletion_schedules (group_id, user_id, marked_for_deletion_on)
    VALUES (OLD.group_id, initiator, OLD.marked_for_deletion_on);

    INSERT INTO "sexton".events (kind, payload) VALUES (
        'group_deletion_handed_over',
        pg_catalog.jsonb_build_object('group_id', OLD.group_id, 'user_id', initiator, 'scheduled_by', OLD.user_id));

    RETURN NULL;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".group_schedule_lost() FROM PUBLIC;

COMMENT ON FUNCTION "sexton".group_schedule_lost() IS 'Sexton: hands a group over, or restores it, when the user who scheduled it is deleted';

CREATE TRIGGER sexton_group_schedule_lost
AFTER DELETE ON "public".group_deletion_schedules
FOR EACH ROW
EXECUTE FUNCTION "sexton".group_schedule_lost();

-- Takes a group's deletion back on a user's behalf, in the caller's transaction. Returns true where it has done so, and
-- false where the group was not to be deleted.
--
-- Raises SX020 for a group that does not exist, SX021 for a user who may not remove it, SX022 once the destruction of the
-- group has removed or changed a row, or that of a group above it has begun.
CREATE FUNCTION "sexton".cancel_group_deletion(group_id bigint, user_id bigint)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    begun bigint;
    stopped boolean := false;
BEGIN
    PERFORM "sexton".open_group_door('cancel the deletion of group', cancel_group_deletion.group_id, cancel_group_deletion.user_id);

    begun := "sexton".group_destruction_above(cancel_group_deletion.group_id);

    IF begun = cancel_group_deletion.group_id THEN
        -- A batch that runs holds this row, and this statement waits for it: then the row says what the batch has done.
        DELETE FROM "sexton".group_destructions AS destruction
        WHERE destruction.group_id = begun AND destruction.done = 0 AND NOT destruction.touched;

        stopped := FOUND;

        IF stopped THEN
            begun := "sexton".group_destruction_above(cancel_group_deletion.group_id);
        END IF;
    END IF;

    IF begun IS NULL THEN
        -- A snapshot from before the destruction began does not see it, nor has the wait for the group's lock shown it.
        -- Writing the same key does.
        BEGIN
            INSERT INTO "sexton".group_destructions (group_id, user_id)
            VALUES (cancel_group_deletion.group_id, cancel_group_deletion.user_id);

            DELETE FROM "sexton".group_destructions AS destruction WHERE destruction.group_id = cancel_group_deletion.group_id;
        EXCEPTION
            WHEN unique_violation THEN
                begun := cancel_group_deletion.group_id;
        END;
    END IF;

    IF begun IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX022',
            MESSAGE = CASE
                WHEN begun = cancel_group_deletion.group_id
                THEN pg_catalog.format('cancel the deletion of group %s: its destruction has begun', begun)
                ELSE pg_catalog.format('cancel the deletion of group %s: the destruction of group %s above it has begun', cancel_group_deletion.group_id, begun)
            END,
            HINT = CASE
                WHEN begun = cancel_group_deletion.group_id THEN 'What has been removed cannot be brought back.'
                ELSE 'Cancel the deletion of that group, which is possible until its first row is removed.'
            END;
    END IF;

    IF NOT stopped AND NOT EXISTS (
        SELECT FROM "public".groups WHERE groups.id = cancel_group_deletion.group_id AND groups.marked_for_deletion_on IS NOT NULL
    ) AND NOT EXISTS (
        SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = cancel_group_deletion.group_id
    ) THEN
        RETURN false;
    END IF;

    PERFORM "sexton".restore_group(cancel_group_deletion.group_id, cancel_group_deletion.user_id, 'cancelled');

    RETURN true;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".cancel_group_deletion(bigint, bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".cancel_group_deletion(bigint, bigint) IS 'Sexton: restores a group that is marked for its deletion';

-- Asks for a group's deletion without the period: schedules the group if need be, moves its mark back to where the period is
-- over, and has its destruction begin, in the caller's transaction. Returns true where it has done so, and false where
-- the group was due, or its destruction had begun, before.
--
-- Raises SX020 for a group that does not exist, SX021 for a user who may not remove it, SX023 where no period is set.
CREATE FUNCTION "sexton".delete_group_now(group_id bigint, user_id bigint)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    due CONSTANT date := "sexton".group_deletion_cutoff() - 1;
BEGIN
    PERFORM "sexton".schedule_group_deletion(delete_group_now.group_id, delete_group_now.user_id);

    IF due IS NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX023',
            MESSAGE = pg_catalog.format('delete group %s now: the application''s settings have no period of 1 to 90 days', delete_group_now.group_id),
            HINT = pg_catalog.format('Set deletion_adjourned_period in %s.', '"public".application_settings');
    ELSIF "sexton".group_destruction_above(delete_group_now.group_id) IS NOT NULL THEN
        RETURN false;
    END IF;

    UPDATE "public".groups
    SET marked_for_deletion_on = due
    WHERE groups.id = delete_group_now.group_id AND groups.marked_for_deletion_on > due;

    IF NOT FOUND THEN
        RETURN false;
    END IF;

    UPDATE "public".group_deletion_schedules AS schedule
    SET user_id = delete_group_now.user_id, marked_for_deletion_on = due
    WHERE schedule.group_id = delete_group_now.group_id;

    DELETE FROM "sexton".group_deletion_failures AS failure WHERE failure.group_id = delete_group_now.group_id;

    INSERT INTO "sexton".events (kind, payload) VALUES (
        'group_deletion_hastened',
        pg_catalog.jsonb_build_object('group_id', delete_group_now.group_id, 'user_id', delete_group_now.user_id));

    -- Without the kind, the daily job takes the group up.
    IF EXISTS (SELECT FROM "sexton".job_kinds WHERE job_kinds.kind = 'group_destroy') THEN
        PERFORM "sexton".enqueue('group_destroy',
            pg_catalog.jsonb_build_object('group_id', delete_group_now.group_id, 'user_id', delete_group_now.user_id));
    END IF;

    RETURN true;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".delete_group_now(bigint, bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".delete_group_now(bigint, bigint) IS 'Sexton: has a group destroyed without waiting for its period';

INSERT INTO "sexton".objects (kind, identity, component) VALUES
    ('function', '"sexton".open_group_door(text, bigint, bigint)', 'adjourned_groups'),
    ('function', '"sexton".five_characters()', 'adjourned_groups'),
    ('function', '"sexton".schedule_group_deletion(bigint, bigint)', 'adjourned_groups'),
    ('function', '"sexton".restore_group(bigint, bigint, text)', 'adjourned_groups'),
    ('function', '"sexton".group_schedule_lost()', 'adjourned_groups'),
    ('trigger', '"public".group_deletion_schedules.sexton_group_schedule_lost', 'adjourned_groups'),
    ('function', '"sexton".cancel_group_deletion(bigint, bigint)', 'adjourned_groups'),
    ('function', '"sexton".delete_group_now(bigint, bigint)', 'adjourned_groups');
