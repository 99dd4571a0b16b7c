-- Blocks a user and queues the user's deletion, in the caller's transaction. Returns
-- false if the user is queued already. Then nothing changes, not even hard_delete. A user
-- who is banned, blocked by LDAP or deactivated keeps that state.
--
-- With hard_delete, contributions are deleted instead of passing to the ghost user. With
-- delete_groups, groups that would be left without an owner are scheduled for deletion.
--
-- Raises
--   SX010 if the user does not exist
--   SX011 if the user may not be deleted. Only users of the types 0 (human), 6 (project
--         bot), 13 (service account) and 15 (placeholder) may be deleted. The ghost user
--         and other internal users may not
--   SX012 if the user is the sole owner of a group and delete_groups is not set. Owners
--         of groups above the group count as owners, and blocked or banned users do not
--   SX013 if the deletion of groups is not installed
--   SX015 if the groups must be deleted and there is no initiator other than the user
--   SX021 if the initiator may not remove the groups
CREATE OR REPLACE FUNCTION "sexton".delete_user(
    user_id bigint,
    initiator_id bigint,
    hard_delete boolean DEFAULT false,
    delete_groups boolean DEFAULT false
)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
AS $sexton$
DECLARE
    -- The date is a constant, because with a call of clock_timestamp() the query would
    -- read all owners once for each group.
    today CONSTANT date := (pg_catalog.clock_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date;
    kind integer;
    previous text;
    group_id bigint;
    bucket integer;
    abandoned bigint[];
    abandoned_names text;
BEGIN
    -- The row lock serializes calls for the same user.
    SELECT coalesce(users.user_type, 0), coalesce(users.state::pg_catalog.text, 'active') INTO kind, previous
    FROM "public".users
    WHERE users.id = delete_user.user_id
    FOR NO KEY UPDATE;

    IF NOT FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX010',
            MESSAGE = pg_catalog.format('delete user: there is no user %s', coalesce(delete_user.user_id::pg_catalog.text, 'NULL'));
    ELSIF kind NOT IN (0, 6, 13, 15) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX011',
            MESSAGE = pg_catalog.format('delete user %s: %s cannot be deleted', delete_user.user_id,
                CASE kind WHEN 5 THEN 'the ghost user' ELSE pg_catalog.format('an internal user (user_type %s)', kind) END);
    END IF;

    IF previous IN ('blocked', 'banned', 'ldap_blocked', 'deactivated') THEN
        previous := NULL;
    END IF;

    -- The user is queued before the groups are scheduled. A queued user may not remove
    -- groups, so groups that this user has scheduled pass to the initiator.
    INSERT INTO "public".users_ghost_user_migrations
        (user_id, initiator_user_id, hard_delete, consume_after, created_at, updated_at, previous_state)
    VALUES
        (delete_user.user_id, delete_user.initiator_id, coalesce(delete_user.hard_delete, false), pg_catalog.now(), pg_catalog.now(), pg_catalog.now(),
            CASE WHEN previous IS NOT NULL THEN pg_catalog.jsonb_build_object('state', previous)::pg_catalog.text END)
    ON CONFLICT DO NOTHING;

    IF NOT FOUND THEN
        RETURN false;
    END IF;

    UPDATE "public".users SET state = 'blocked' WHERE users.id = delete_user.user_id AND previous IS NOT NULL;

    IF "sexton".application_table('members') AND "sexton".application_table('groups') THEN
        -- The locks serialize the deletion of two owners of one group, so that the second
        -- call finds its user to be the sole owner. Groups above the group need no lock:
        -- the deletion of their last owner is refused, or the groups are deleted with
        -- everything below them. The first key is "sexo" in ASCII. Groups share 256
        -- second keys, because one lock for each of thousands of groups would exhaust the
        -- server's lock table.
        FOR bucket IN
            SELECT DISTINCT pg_catalog.hashint8(member.source_id) & 255
            FROM "public".members AS member
            WHERE member.user_id = delete_user.user_id
              AND member.source_type = 'Namespace'
              AND member.access_level = 50
            ORDER BY 1
        LOOP
            PERFORM pg_catalog.pg_advisory_xact_lock(1936029807, bucket);
        END LOOP;

        WITH RECURSIVE owner AS NOT MATERIALIZED (
            SELECT member.source_id, member.user_id
            FROM "public".members AS member
            WHERE member.source_type = 'Namespace'
              AND member.access_level = 50
              AND coalesce(member.state, 0) = 0
              AND member.requested_at IS NULL
              AND (member.expires_at IS NULL OR member.expires_at > today)
        ), lineage AS (
            -- An owner of a group also owns the groups below it.
            SELECT mine.source_id AS group_id, mine.source_id AS ancestor_id
            FROM owner AS mine
            WHERE mine.user_id = delete_user.user_id
            UNION
            SELECT lineage.group_id, ancestor.parent_id
            FROM lineage
            JOIN "public".groups AS ancestor ON ancestor.id = lineage.ancestor_id
            WHERE ancestor.parent_id IS NOT NULL
        ), ancestry AS (
            SELECT lineage.group_id, pg_catalog.array_agg(lineage.ancestor_id) AS ancestors
            FROM lineage
            GROUP BY lineage.group_id
        ), sole AS (
            SELECT owned.id, owned.path, pg_catalog.row_number() OVER (ORDER BY owned.path, owned.id) AS place
            FROM ancestry
            JOIN "public".groups AS owned ON owned.id = ancestry.group_id
            WHERE NOT EXISTS (
                SELECT
                FROM owner AS other
                JOIN "public".users ON users.id = other.user_id
                WHERE other.source_id = ANY (ancestry.ancestors)
                  AND other.user_id <> delete_user.user_id
                  -- Users who cannot sign in or are queued for deletion do not count as
                  -- owners.
                  AND coalesce(users.state, 'active') NOT IN ('blocked', 'ldap_blocked', 'blocked_pending_approval', 'banned')
                  AND NOT EXISTS (SELECT FROM "public".users_ghost_user_migrations AS job WHERE job.user_id = other.user_id)
                -- OFFSET 0 makes Postgres run this subquery for each group. A join would
                -- read the owners of all groups.
                OFFSET 0
            )
        )
        SELECT
            pg_catalog.array_agg(sole.id ORDER BY sole.place),
            pg_catalog.string_agg(pg_catalog.format('%s (id %s)', sole.path, sole.id), ', ' ORDER BY sole.place) FILTER (WHERE sole.place <= 10)
            || CASE WHEN pg_catalog.count(*) > 10 THEN pg_catalog.format(' and %s more', pg_catalog.count(*) - 10) ELSE '' END
        INTO abandoned, abandoned_names
        FROM sole;

        IF abandoned IS NOT NULL AND NOT coalesce(delete_groups, false) THEN
            RAISE EXCEPTION USING
                ERRCODE = 'SX012',
                MESSAGE = pg_catalog.format('delete user %s: sole owner of the groups %s', delete_user.user_id, abandoned_names),
                HINT = 'Transfer their ownership, or delete these groups as well (delete_groups).';
        ELSIF abandoned IS NOT NULL AND pg_catalog.to_regprocedure('"sexton".schedule_group_deletion(bigint, bigint)') IS NULL THEN
            RAISE EXCEPTION USING
                ERRCODE = 'SX013',
                MESSAGE = pg_catalog.format('delete user %s: cannot delete the groups %s, because the deletion of groups is not installed',
                    delete_user.user_id, abandoned_names),
                HINT = 'Enable adjourned_groups and run "sexton migrate up", or transfer the ownership of these groups.';
        ELSIF abandoned IS NOT NULL AND (delete_user.initiator_id IS NULL OR delete_user.initiator_id = delete_user.user_id) THEN
            -- Groups are restored at the end of their period if the user who scheduled
            -- them has been deleted.
            RAISE EXCEPTION USING
                ERRCODE = 'SX015',
                MESSAGE = pg_catalog.format('delete user %s: the deletion of the groups %s needs an initiator other than this user', delete_user.user_id, abandoned_names),
                HINT = 'Pass another user who may remove them, such as an administrator, or transfer their ownership.';
        END IF;

        FOREACH group_id IN ARRAY coalesce(abandoned, '{}') LOOP
            EXECUTE 'SELECT "sexton".schedule_group_deletion($1, $2)' USING group_id, delete_user.initiator_id;
        END LOOP;
    END IF;

    RETURN true;
END;
$sexton$;

COMMENT ON FUNCTION "sexton".delete_user(bigint, bigint, boolean, boolean) IS 'Sexton: blocks a user and queues the deletion';
