-- The groups that are to be deleted, with who asked for it. An application may bring the table along: then it is used
-- as it is.
DO $sexton$
BEGIN
    IF to_regclass('"public".group_deletion_schedules') IS NULL THEN
        CREATE TABLE "public".group_deletion_schedules (
            group_id bigint PRIMARY KEY REFERENCES "public".groups ON DELETE CASCADE,
            -- No key: where that user goes first, the group is restored rather than left with its mark for ever.
            user_id bigint NOT NULL,
            marked_for_deletion_on date NOT NULL
        );

        CREATE INDEX group_deletion_schedules_user_id_idx ON "public".group_deletion_schedules (user_id);

        COMMENT ON TABLE "public".group_deletion_schedules IS
            'Sexton: groups that are to be deleted when their period is over, and on whose behalf';

        INSERT INTO "sexton".objects (kind, identity, component) VALUES
            ('table', '"public".group_deletion_schedules', 'adjourned_groups');
    END IF;
END;
$sexton$;

-- The groups whose destruction has begun: from the first row on there is no way back. The row goes with the group.
CREATE TABLE "sexton".group_destructions (
    group_id bigint PRIMARY KEY,
    user_id bigint NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What is being removed now.
    step text,
    done bigint NOT NULL DEFAULT 0,
    -- An estimate; NULL until there is one.
    total bigint,
    attempts integer NOT NULL DEFAULT 0,
    last_error text,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (
    -- Every batch counts itself here, so let the new version stay on the page of the old one.
    fillfactor = 50
);

COMMENT ON TABLE "sexton".group_destructions IS 'Sexton: groups whose destruction has begun';

-- The due groups about which nothing could be decided, or whose destruction cannot begin, with the reason. Such a group is
-- put off, and delays no other. The row goes when the destruction begins, or with the mark.
CREATE TABLE "sexton".group_deletion_failures (
    group_id bigint PRIMARY KEY,
    attempts integer NOT NULL DEFAULT 1,
    last_error text NOT NULL,
    retry_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE "sexton".group_deletion_failures IS 'Sexton: due groups that are put off after an error';

-- Returns the date before which a mark makes a group due: today (UTC) less the period of the application's settings, or
-- NULL where there is no period from 1 to 90 days. Then nothing is due: a period is never guessed. Of several rows of
-- settings the longest period counts.
CREATE FUNCTION "sexton".group_deletion_cutoff()
RETURNS date
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    period integer;
BEGIN
    IF to_regclass('"public".application_settings') IS NOT NULL THEN
        -- By its name in the row, which an application without such a column does not have.
        SELECT max((to_jsonb(settings) ->> 'deletion_adjourned_period')::integer) INTO period
        FROM "public".application_settings AS settings;
    END IF;

    IF period BETWEEN 1 AND 90 THEN
        RETURN (statement_timestamp() AT TIME ZONE 'UTC')::date - period;
    END IF;

    RETURN NULL;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".group_deletion_cutoff() FROM PUBLIC;

COMMENT ON FUNCTION "sexton".group_deletion_cutoff() IS 'Sexton: the date before which a mark makes a group due';

-- Sexton's own rule for who may remove a group: administrators, and owners (50) of the group or of one above it, by an
-- active and accepted membership that has not expired, or as owners of a group with which one of these is shared with
-- the access of an owner. Never users that are blocked, banned, about to be deleted, or gone.
CREATE FUNCTION "sexton".default_may_remove_group(user_id bigint, group_id bigint)
RETURNS boolean
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    today CONSTANT date := (statement_timestamp() AT TIME ZONE 'UTC')::date;
    is_admin boolean;
    line bigint[];
    owned bigint[];
BEGIN
    SELECT coalesce(users.admin, false) INTO is_admin
    FROM "public".users
    WHERE users.id = default_may_remove_group.user_id
      AND coalesce(users.state, 'active') NOT IN ('blocked', 'ldap_blocked', 'blocked_pending_approval', 'banned');

    IF NOT FOUND THEN
        RETURN false;
    END IF;

    IF to_regclass('"public".users_ghost_user_migrations') IS NOT NULL THEN
        IF EXISTS (SELECT FROM "public".users_ghost_user_migrations AS job WHERE job.user_id = default_may_remove_group.user_id) THEN
            RETURN false;
        END IF;
    END IF;

    -- UNION, not UNION ALL, ends even where groups are their own ancestors.
    WITH RECURSIVE above AS (
        SELECT groups.id, groups.parent_id FROM "public".groups WHERE groups.id = default_may_remove_group.group_id
        UNION
        SELECT parent.id, parent.parent_id FROM above JOIN "public".groups AS parent ON parent.id = above.parent_id
    )
    SELECT array_agg(above.id) INTO line FROM above;

    IF line IS NULL THEN
        RETURN false;
    ELSIF is_admin THEN
        RETURN true;
    ELSIF to_regclass('"public".members') IS NULL THEN
        RETURN false;
    END IF;

    SELECT array_agg(member.source_id) INTO owned
    FROM "public".members AS member
    WHERE member.user_id = default_may_remove_group.user_id
      AND member.source_type = 'Namespace'
      AND member.access_level = 50
      AND coalesce(member.state, 0) = 0
      AND member.requested_at IS NULL
      AND (member.expires_at IS NULL OR member.expires_at > today);

    IF owned IS NULL THEN
        RETURN false;
    ELSIF owned && line THEN
        RETURN true;
    ELSIF to_regclass('"public".group_group_links') IS NULL THEN
        RETURN false;
    END IF;

    RETURN EXISTS (
        SELECT FROM "public".group_group_links AS link
        WHERE link.shared_group_id = ANY (line)
          AND link.shared_with_group_id = ANY (owned)
          AND link.group_access = 50
          AND (link.expires_at IS NULL OR link.expires_at > today)
    );
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".default_may_remove_group(bigint, bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".default_may_remove_group(bigint, bigint) IS 'Sexton: its own rule for who may remove a group';

-- The rule that counts. It is the application's to replace (CREATE OR REPLACE FUNCTION) and may call Sexton's own. No
-- migration ever writes it again, so that a replacement outlives every upgrade, while the rule above gets better.
DO $sexton$
BEGIN
    IF to_regprocedure('"sexton".may_remove_group(bigint, bigint)') IS NULL THEN
        CREATE FUNCTION "sexton".may_remove_group(user_id bigint, group_id bigint)
        RETURNS boolean
        LANGUAGE sql
        STABLE
        AS 'SELECT "sexton".default_may_remove_group(user_id, group_id)';

        REVOKE ALL ON FUNCTION "sexton".may_remove_group(bigint, bigint) FROM PUBLIC;

        COMMENT ON FUNCTION "sexton".may_remove_group(bigint, bigint) IS
            'Sexton: who may remove a group; replace it to have a rule of your own';

        INSERT INTO "sexton".objects (kind, identity, component) VALUES
            ('function', '"sexton".may_remove_group(bigint, bigint)', 'adjourned_groups');
    END IF;
END;
$sexton$;

-- Returns the group itself or the nearest above it whose destruction has begun, or NULL.
CREATE FUNCTION "sexton".group_destruction_above(group_id bigint)
RETURNS bigint
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
    WITH RECURSIVE above AS (
        SELECT groups.id, groups.parent_id, 0 AS height FROM "public".groups WHERE groups.id = group_destruction_above.group_id
        UNION ALL
        SELECT parent.id, parent.parent_id, above.height + 1
        FROM above
        JOIN "public".groups AS parent ON parent.id = above.parent_id
        -- Deeper than any tree; groups that are their own ancestors must end somewhere.
        WHERE above.height < 100
    )
    SELECT above.id
    FROM above
    JOIN "sexton".group_destructions AS destruction ON destruction.group_id = above.id
    ORDER BY above.height
    LIMIT 1;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".group_destruction_above(bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".group_destruction_above(bigint) IS 'Sexton: the group or ancestor whose destruction has begun';

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
            MESSAGE = format('%s: there is no group %s', door, coalesce(open_group_door.group_id::text, 'NULL'));
    ELSIF "sexton".may_remove_group(open_group_door.user_id, open_group_door.group_id) IS NOT TRUE THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX021',
            MESSAGE = format('%s %s: user %s may not remove it', door, open_group_door.group_id,
                coalesce(open_group_door.user_id::text, 'NULL')),
            HINT = 'Administrators may, and owners of the group or of one above it who are not blocked.';
    END IF;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".open_group_door(text, bigint, bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".open_group_door(text, bigint, bigint) IS 'Sexton: locks a group and checks who asks';

-- Asks for a group's deletion on a user's behalf: marks the group and renames it, so that its name and path are free, in
-- the caller's transaction. Returns true where it has done so, and false where the group is scheduled already, or is
-- being destroyed with one above it; then nothing changes.
--
-- Raises SX020 for a group that does not exist and SX021 for a user who may not remove it.
CREATE FUNCTION "sexton".schedule_group_deletion(group_id bigint, user_id bigint)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    today CONSTANT date := (statement_timestamp() AT TIME ZONE 'UTC')::date;
    suffix CONSTANT text := '-deletion_scheduled-' || schedule_group_deletion.group_id;
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

    IF marked IS NOT NULL AND EXISTS (
        SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = schedule_group_deletion.group_id
    ) OR "sexton".group_destruction_above(schedule_group_deletion.group_id) IS NOT NULL THEN
        RETURN false;
    END IF;

    FOR attempt IN 1..attempts LOOP
        BEGIN
            UPDATE "public".groups
            SET marked_for_deletion_on = today,
                name = CASE WHEN right(own_name, length(suffix)) = suffix THEN own_name ELSE own_name || tail || suffix END,
                path = CASE WHEN right(own_path, length(suffix)) = suffix THEN own_path ELSE own_path || tail || suffix END
            WHERE groups.id = schedule_group_deletion.group_id;

            EXIT;
        EXCEPTION
            WHEN unique_violation THEN
                -- Some other group was given that very path by hand.
                IF attempt = attempts THEN
                    RAISE;
                END IF;

                tail := '-' || "sexton".five_characters();
        END;
    END LOOP;

    -- Whoever comes here holds the group's lock, so there is no race between the two statements.
    UPDATE "public".group_deletion_schedules AS schedule
    SET user_id = schedule_group_deletion.user_id, marked_for_deletion_on = today
    WHERE schedule.group_id = schedule_group_deletion.group_id;

    IF NOT FOUND THEN
        INSERT INTO "public".group_deletion_schedules (group_id, user_id, marked_for_deletion_on)
        VALUES (schedule_group_deletion.group_id, schedule_group_deletion.user_id, today);
    END IF;

    INSERT INTO "sexton".events (kind, payload)
    SELECT 'group_deletion_scheduled', jsonb_build_object(
        'group_id', groups.id, 'parent_id', groups.parent_id, 'path', groups.path,
        'user_id', schedule_group_deletion.user_id, 'marked_for_deletion_on', today)
    FROM "public".groups
    WHERE groups.id = schedule_group_deletion.group_id;

    RETURN true;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".schedule_group_deletion(bigint, bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".schedule_group_deletion(bigint, bigint) IS 'Sexton: marks a group for its deletion';

-- Five random letters and digits, for a path that is taken.
CREATE FUNCTION "sexton".five_characters()
RETURNS text
LANGUAGE sql
VOLATILE
SET search_path = pg_catalog, pg_temp
AS $sexton$
    SELECT string_agg(substr('abcdefghijklmnopqrstuvwxyz0123456789', 1 + floor(random() * 36)::integer, 1), '')
    FROM generate_series(1, 5);
$sexton$;

REVOKE ALL ON FUNCTION "sexton".five_characters() FROM PUBLIC;

COMMENT ON FUNCTION "sexton".five_characters() IS 'Sexton: random letters and digits for a path that is taken';

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

    -- Whoever gave the group another name since then meant it. A bare suffix stays: a group needs a name.
    old_name := CASE WHEN right(own.name, length(suffix)) = suffix THEN coalesce(nullif(left(own.name, -length(suffix)), ''), own.name) ELSE own.name END;
    old_path := CASE WHEN right(own.path, length(suffix)) = suffix THEN coalesce(nullif(left(own.path, -length(suffix)), ''), own.path) ELSE own.path END;

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
        jsonb_build_object(
            'group_id', own.id, 'parent_id', own.parent_id, 'path', old_path || tail,
            'user_id', restore_group.user_id, 'scheduled_by', scheduled_by, 'reason', restore_group.reason));
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".restore_group(bigint, bigint, text) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".restore_group(bigint, bigint, text) IS 'Sexton: gives a group back its name, without mark and schedule';

-- Takes a group's deletion back on a user's behalf, in the caller's transaction. Returns true where it has done so, and
-- false where the group was not to be deleted.
--
-- Raises SX020 for a group that does not exist, SX021 for a user who may not remove it, SX022 once the destruction of the
-- group, or of one above it, has begun.
CREATE FUNCTION "sexton".cancel_group_deletion(group_id bigint, user_id bigint)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    begun bigint;
BEGIN
    PERFORM "sexton".open_group_door('cancel the deletion of group', cancel_group_deletion.group_id, cancel_group_deletion.user_id);

    begun := "sexton".group_destruction_above(cancel_group_deletion.group_id);

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
                THEN format('cancel the deletion of group %s: its destruction has begun', begun)
                ELSE format('cancel the deletion of group %s: the destruction of group %s above it has begun', cancel_group_deletion.group_id, begun)
            END,
            HINT = 'What has been removed cannot be brought back.';
    END IF;

    IF NOT EXISTS (
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
AS $sexton$
DECLARE
    due CONSTANT date := "sexton".group_deletion_cutoff() - 1;
BEGIN
    PERFORM "sexton".schedule_group_deletion(delete_group_now.group_id, delete_group_now.user_id);

    IF due IS NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX023',
            MESSAGE = format('delete group %s now: the application''s settings have no period of 1 to 90 days', delete_group_now.group_id),
            HINT = format('Set deletion_adjourned_period in %s.', '"public".application_settings');
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
        jsonb_build_object('group_id', delete_group_now.group_id, 'user_id', delete_group_now.user_id));

    -- Without the kind, the daily job takes the group up.
    IF EXISTS (SELECT FROM "sexton".job_kinds WHERE job_kinds.kind = 'group_destroy') THEN
        PERFORM "sexton".enqueue('group_destroy',
            jsonb_build_object('group_id', delete_group_now.group_id, 'user_id', delete_group_now.user_id));
    END IF;

    RETURN true;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".delete_group_now(bigint, bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".delete_group_now(bigint, bigint) IS 'Sexton: has a group destroyed without waiting for its period';

-- Returns the job that waits to destroy a group on a user's behalf, or is at it, or NULL. It is found by the key that
-- sexton.enqueue gives it: an index of the arguments has to be searched for what was added to it last.
CREATE FUNCTION "sexton".group_destroy_job(group_id bigint, user_id bigint)
RETURNS bigint
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
    SELECT job.id
    FROM "sexton".river_job AS job
    WHERE job.unique_key = sha256(convert_to(
            format('&kind=group_destroy&args={"group_id":%s,"user_id":%s}', group_destroy_job.group_id, group_destroy_job.user_id), 'UTF8'))
      AND job.unique_states IS NOT NULL
      AND "sexton".river_job_state_in_bitmask(job.unique_states, job.state);
$sexton$;

REVOKE ALL ON FUNCTION "sexton".group_destroy_job(bigint, bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".group_destroy_job(bigint, bigint) IS 'Sexton: the job that is to destroy a group';

-- Decides about one group that is due, in a transaction of its own: has it destroyed at run_at where whoever scheduled it
-- may still remove it, and otherwise restores it. The outcome is
--
--   enqueued     a job group_destroy was inserted
--   waiting      there is one already
--   restored     reason says why: not_permitted, or user_missing
--   undue        the group is gone, was restored, or has lost its schedule meanwhile
CREATE FUNCTION "sexton".decide_group_deletion(
    group_id bigint, run_at timestamptz,
    OUT outcome text, OUT user_id bigint, OUT path text, OUT reason text
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
BEGIN
    outcome := 'undue';

    -- Doors that change the group wait here, or are waited for.
    SELECT groups.path INTO path
    FROM "public".groups
    WHERE groups.id = decide_group_deletion.group_id
    FOR UPDATE;

    SELECT schedule.user_id INTO user_id
    FROM "public".groups
    JOIN "public".group_deletion_schedules AS schedule ON schedule.group_id = groups.id
    WHERE groups.id = decide_group_deletion.group_id
      AND groups.marked_for_deletion_on < "sexton".group_deletion_cutoff();

    IF NOT FOUND THEN
        RETURN;
    END IF;

    -- One on behalf of another user is not looked for here: such a group is not looked up at all.
    IF "sexton".group_destroy_job(decide_group_deletion.group_id, user_id) IS NOT NULL THEN
        outcome := 'waiting';
    ELSIF EXISTS (
        SELECT FROM "sexton".group_destructions AS destruction WHERE destruction.group_id = decide_group_deletion.group_id
    ) OR "sexton".may_remove_group(user_id, decide_group_deletion.group_id) THEN
        -- What has begun goes on, whoever asked for it.
        PERFORM "sexton".enqueue('group_destroy',
            jsonb_build_object('group_id', decide_group_deletion.group_id, 'user_id', user_id), run_at);
        outcome := 'enqueued';
    ELSE
        reason := CASE
            WHEN EXISTS (SELECT FROM "public".users WHERE users.id = decide_group_deletion.user_id) THEN 'not_permitted'
            ELSE 'user_missing'
        END;
        PERFORM "sexton".restore_group(decide_group_deletion.group_id, NULL, reason);
        outcome := 'restored';
    END IF;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".decide_group_deletion(bigint, timestamptz) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".decide_group_deletion(bigint, timestamptz) IS 'Sexton: has a due group destroyed, or restores it';

INSERT INTO "sexton".objects (kind, identity, component) VALUES
    ('table', '"sexton".group_destructions', 'adjourned_groups'),
    ('table', '"sexton".group_deletion_failures', 'adjourned_groups'),
    ('function', '"sexton".group_deletion_cutoff()', 'adjourned_groups'),
    ('function', '"sexton".default_may_remove_group(bigint, bigint)', 'adjourned_groups'),
    ('function', '"sexton".group_destruction_above(bigint)', 'adjourned_groups'),
    ('function', '"sexton".open_group_door(text, bigint, bigint)', 'adjourned_groups'),
    ('function', '"sexton".schedule_group_deletion(bigint, bigint)', 'adjourned_groups'),
    ('function', '"sexton".five_characters()', 'adjourned_groups'),
    ('function', '"sexton".restore_group(bigint, bigint, text)', 'adjourned_groups'),
    ('function', '"sexton".cancel_group_deletion(bigint, bigint)', 'adjourned_groups'),
    ('function', '"sexton".delete_group_now(bigint, bigint)', 'adjourned_groups'),
    ('function', '"sexton".group_destroy_job(bigint, bigint)', 'adjourned_groups'),
    ('function', '"sexton".decide_group_deletion(bigint, timestamp with time zone)', 'adjourned_groups');
