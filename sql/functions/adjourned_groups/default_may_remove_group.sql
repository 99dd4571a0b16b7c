-- Sexton's own rule for who may remove a group: administrators, and owners (50) of the group or of one above it, by an
-- active and accepted membership that has not expired, or as owners of a group with which one of these is shared with
-- the access of an owner. Never users that are blocked, banned, about to be deleted, or gone.
-- Who asks for thousands of groups has none of the small tables read as a whole for each.
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

    -- UNION, not UNION ALL, ends even where groups are their own ancestors.
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

COMMENT ON FUNCTION "sexton".default_may_remove_group(bigint, bigint) IS 'Sexton: its own rule for who may remove a group';
