-- The table has the groups that are scheduled for deletion, with the users who requested
-- it. If the application has this table already, Sexton uses it unchanged.
DO $sexton$
BEGIN
    IF {brings_schedules} AND pg_catalog.to_regclass('"public".group_deletion_schedules') IS NULL THEN
        CREATE TABLE IF NOT EXISTS "public".group_deletion_schedules (
            group_id bigint PRIMARY KEY REFERENCES "public".groups ON DELETE CASCADE,
            -- user_id is not a foreign key. If this user is deleted first, the group is
            -- restored instead of keeping its mark forever.
            user_id bigint NOT NULL,
            marked_for_deletion_on date NOT NULL
        );

        CREATE INDEX IF NOT EXISTS group_deletion_schedules_user_id_idx ON "public".group_deletion_schedules (user_id);

        COMMENT ON TABLE "public".group_deletion_schedules IS
            'Sexton: groups that are scheduled for deletion, and the users who requested it';

    END IF;
END;
$sexton$;

-- The table has the groups whose destruction has begun. The deletion can be cancelled
-- until the first row is deleted or changed. The group's row in this table is deleted
-- with the group.
CREATE TABLE IF NOT EXISTS "sexton".group_destructions (
    group_id "{group}" PRIMARY KEY,
    user_id "{user}"{required},
    begun_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    -- step describes the current step for people.
    step text,
    -- done is the number of deleted rows. It is updated every second.
    done bigint NOT NULL DEFAULT 0,
    -- touched is true if a row was deleted or changed. The transaction of that change
    -- sets it.
    touched boolean NOT NULL DEFAULT false,
    -- total is the estimated number of all rows to be deleted, or NULL.
    total bigint,
    attempts integer NOT NULL DEFAULT 0,
    last_error text,
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) WITH (
    -- A run updates its row every second. The fill factor leaves room on the page for HOT
    -- updates.
    fillfactor = 50
);

COMMENT ON TABLE "sexton".group_destructions IS 'Sexton: groups whose destruction has begun';

-- The table has due groups for which the decision failed or whose destruction cannot
-- begin, with the reason. Such a group is deferred and delays no other group. Its row is
-- deleted when the destruction begins or the mark is removed.
CREATE TABLE IF NOT EXISTS "sexton".group_deletion_failures (
    group_id "{group}" PRIMARY KEY,
    attempts integer NOT NULL DEFAULT 1,
    last_error text NOT NULL,
    retry_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

COMMENT ON TABLE "sexton".group_deletion_failures IS 'Sexton: due groups that are deferred after an error';
