-- The groups that are to be deleted, with who asked for it. An application may bring the table along: then it is used
-- as it is.
DO $sexton$
BEGIN
    IF pg_catalog.to_regclass('"public".group_deletion_schedules') IS NULL THEN
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

-- The groups whose destruction has begun. The deletion can be cancelled until the first row has gone or changed. The row goes
-- with the group.
CREATE TABLE "sexton".group_destructions (
    group_id bigint PRIMARY KEY,
    user_id bigint NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    -- What is being removed now.
    step text,
    done bigint NOT NULL DEFAULT 0,
    -- Rows were changed, such as a reference to the group set NULL, which done does not count.
    touched boolean NOT NULL DEFAULT false,
    -- An estimate; NULL until there is one.
    total bigint,
    attempts integer NOT NULL DEFAULT 0,
    last_error text,
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
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
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
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
SET row_security = off
AS $sexton$
DECLARE
    period integer;
BEGIN
    IF "sexton".application_table('application_settings') THEN
        -- By its name in the row, which an application without such a column does not have.
        SELECT pg_catalog.max((pg_catalog.to_jsonb(settings) ->> 'deletion_adjourned_period')::integer) INTO period
        FROM "public".application_settings AS settings;
    END IF;

    IF period BETWEEN 1 AND 90 THEN
        RETURN (pg_catalog.statement_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date - period;
    END IF;

    RETURN NULL;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".group_deletion_cutoff() FROM PUBLIC;

COMMENT ON FUNCTION "sexton".group_deletion_cutoff() IS 'Sexton: the date before which a mark makes a group due';

-- Sexton's own rule for who may remove a group: administrators, and owners (50) of the group or of one above it, by an
-- active and accepted membership that has not expired, or as owners of a group with which one of these is shared with
-- the access of an owner. Never users that are blocked, banned, about to be deleted, or gone.
-- Who asks for thousands of groups has none of the small tables read as a whole for each.
CREATE FUNCTION "sexton".default_may_remove_group(user_id bigint, group_id bigint)
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

-- The rule that counts. It is the application's to replace (CREATE OR REPLACE FUNCTION) and may call Sexton's own. No
-- migration ever writes it again, so that a replacement outlives every upgrade, while the rule above gets better.
DO $sexton$
BEGIN
    IF pg_catalog.to_regprocedure('"sexton".may_remove_group(bigint, bigint)') IS NULL THEN
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
SET row_security = off
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

INSERT INTO "sexton".objects (kind, identity, component) VALUES
    ('table', '"sexton".group_destructions', 'adjourned_groups'),
    ('table', '"sexton".group_deletion_failures', 'adjourned_groups'),
    ('function', '"sexton".group_deletion_cutoff()', 'adjourned_groups'),
    ('function', '"sexton".default_may_remove_group(bigint, bigint)', 'adjourned_groups'),
    ('function', '"sexton".group_destruction_above(bigint)', 'adjourned_groups');
