-- Reports whether a user may remove a group by Sexton's default rule. Administrators may
-- remove it, and so may owners (access level 50) of the group or of a group above it. An
-- owner has an active, accepted and unexpired membership of one of these groups, or of a
-- group with which one of these groups is shared with owner access. Users who are
-- blocked, banned, queued for deletion or deleted may not remove it. Sequential scans are
-- off so that a caller with thousands of groups does not read each small table completely
-- for each group.
CREATE OR REPLACE FUNCTION "sexton".default_may_remove_group(user_id bigint, group_id bigint)
RETURNS boolean
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
SET enable_seqscan = off
AS $sexton$
DECLARE
    today CONSTANT date := (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date;
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

    IF "sexton".application_table('users_ghost_user_migrations') THEN
        IF EXISTS (SELECT FROM "public".users_ghost_user_migrations AS job WHERE job.user_id = default_may_remove_group.user_id) THEN
            RETURN false;
        END IF;
    END IF;

    -- UNION, unlike UNION ALL, ends the recursion even if a group is its own ancestor.
    WITH RECURSIVE above AS (
        SELECT groups.id, groups.parent_id FROM "public".groups WHERE groups.id = default_may_remove_group.group_id
        UNION
        SELECT parent.id, parent.parent_id FROM above JOIN "public".groups AS parent ON parent.id = above.parent_id
    )
    SELECT pg_catalog.array_agg(above.id) INTO line FROM above;

    IF line IS NULL THEN
        RETURN false;
    ELSIF is_admin THEN
        RETURN true;
    ELSIF NOT "sexton".application_table('members') THEN
        RETURN false;
    END IF;

    SELECT pg_catalog.array_agg(member.source_id) INTO owned
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
    ELSIF NOT "sexton".application_table('group_group_links') THEN
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

COMMENT ON FUNCTION "sexton".default_may_remove_group(bigint, bigint) IS 'Sexton: default rule for who may remove a group';
