-- The groups that are to be deleted, with who asked for it. An application may bring the table along: then it is used
-- as it is.
DO $sexton$
BEGIN
    IF {brings_schedules} AND pg_catalog.to_regclass('"public".group_deletion_schedules') IS NULL THEN
        CREATE TABLE IF NOT EXISTS "public".group_deletion_schedules (
            group_id bigint PRIMARY KEY REFERENCES "public".groups ON DELETE CASCADE,
            -- No key: where that user goes first, the group is restored rather than left with its mark for ever.
            user_id bigint NOT NULL,
            marked_for_deletion_on date NOT NULL
        );

        CREATE INDEX IF NOT EXISTS group_deletion_schedules_user_id_idx ON "public".group_deletion_schedules (user_id);

        COMMENT ON TABLE "public".group_deletion_schedules IS
            'Sexton: groups that are to be deleted when their period is over, and on whose behalf';

    END IF;
END;
$sexton$;

-- The groups whose destruction has begun. The deletion can be cancelled until the first row has gone or changed. The row goes
-- with the group.
CREATE TABLE IF NOT EXISTS "sexton".group_destructions (
    group_id "{group}" PRIMARY KEY,
    user_id "{user}"{required},
    begun_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    -- What is being removed now.
    step text,
    -- The number of deleted rows, recorded every second.
    done bigint NOT NULL DEFAULT 0,
    -- A row was deleted or changed. The transaction that did this has set it.
    touched boolean NOT NULL DEFAULT false,
    -- An estimate; NULL until there is one.
    total bigint,
    attempts integer NOT NULL DEFAULT 0,
    last_error text,
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) WITH (
    -- A run records its progress here every second, so let the new version stay on the page of the old one.
    fillfactor = 50
);

COMMENT ON TABLE "sexton".group_destructions IS 'Sexton: groups whose destruction has begun';

-- The due groups about which nothing could be decided, or whose destruction cannot begin, with the reason. Such a group is
-- put off, and delays no other. The row goes when the destruction begins, or with the mark.
CREATE TABLE IF NOT EXISTS "sexton".group_deletion_failures (
    group_id "{group}" PRIMARY KEY,
    attempts integer NOT NULL DEFAULT 1,
    last_error text NOT NULL,
    retry_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);

COMMENT ON TABLE "sexton".group_deletion_failures IS 'Sexton: due groups that are put off after an error';
