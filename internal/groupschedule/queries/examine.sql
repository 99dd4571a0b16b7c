-- Returns whether the component is installed, the foreign keys that delete schedules with
-- their users if the trigger for these is missing or disabled, the columns that the
-- default rule lacks, and the table of groups if it is large and has no index on the
-- mark.
SELECT
    pg_catalog.to_regclass('"sexton".group_destructions') IS NOT NULL,
    coalesce((
        SELECT pg_catalog.string_agg(constraints.conname, ', ' ORDER BY constraints.conname)
        FROM pg_catalog.pg_constraint AS constraints
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = constraints.conrelid AND a.attnum = ANY (constraints.conkey) AND a.attname = 'user_id'
        WHERE constraints.conrelid = pg_catalog.to_regclass('"public".group_deletion_schedules')::pg_catalog.oid AND constraints.contype = 'f' AND constraints.confdeltype = 'c'
          AND NOT EXISTS (
              SELECT FROM pg_catalog.pg_trigger AS installed
              WHERE installed.tgrelid = constraints.conrelid AND installed.tgname = 'sexton_group_schedule_lost' AND installed.tgenabled IN ('O', 'A')
          )
    ), ''),
    ARRAY(
        SELECT wanted.name || '.' || wanted.attribute
        FROM (VALUES
            ('members', 'user_id'), ('members', 'source_type'), ('members', 'source_id'), ('members', 'access_level'), ('members', 'state'),
            ('members', 'requested_at'), ('members', 'expires_at'),
            ('group_group_links', 'shared_group_id'), ('group_group_links', 'shared_with_group_id'), ('group_group_links', 'group_access'),
            ('group_group_links', 'expires_at')
        ) AS wanted (name, attribute)
        JOIN pg_catalog.pg_class AS c ON c.relname = wanted.name
            AND c.relnamespace = (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass('"public".groups')::pg_catalog.oid)
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = wanted.attribute AND NOT a.attisdropped)
    ),
    coalesce((
        SELECT c.oid FROM pg_catalog.pg_class AS c
        WHERE c.oid = pg_catalog.to_regclass('"public".groups')::pg_catalog.oid AND c.reltuples >= 10000::pg_catalog.float4
          AND NOT EXISTS (
              SELECT FROM pg_catalog.pg_index AS i
              JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] AND a.attname = 'marked_for_deletion_on'
              WHERE i.indrelid = c.oid AND i.indisvalid
          )
    ), 0::pg_catalog.oid)
