-- The fencing token of each lease, as this database knows it. A new holder raises the token here
-- before its first batch; every batch checks it under a share lock (see begin_batch).
CREATE TABLE "sexton".fences (
    key text PRIMARY KEY,
    token bigint NOT NULL,
    -- The generation of definitions that may be worked with under the lease, which "sexton triggers install" alone sets, raising the
    -- token with it. NULL: none is recorded, and any is let through.
    digest text
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".fences IS 'Sexton: fencing tokens of leases, checked in every batch';

-- The outbox. A reader takes rows WHERE txid < pg_snapshot_xmin(pg_current_snapshot()) in order of
-- (txid, id): ids are given out before commit, so an id alone would skip what commits late.
CREATE TABLE "sexton".events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    txid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
    kind text NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);

CREATE INDEX events_txid_id_idx ON "sexton".events (txid, id);

COMMENT ON TABLE "sexton".events IS 'Sexton: outbox of what happened, kept 7 days';

-- What a batch calls its session, before "#" and the token: short enough that both fit into the 63 bytes
-- that Postgres keeps, with a hash because only the beginning of the key does.
CREATE FUNCTION "sexton".session_name(fence_key text)
RETURNS text
LANGUAGE sql
IMMUTABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $sexton$
    SELECT 'sexton ' || pg_catalog.left(fence_key, 24) || ' ' || pg_catalog.left(pg_catalog.md5(fence_key), 8);
$sexton$;

REVOKE ALL ON FUNCTION "sexton".session_name(text) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".session_name(text) IS 'Sexton: name of the sessions that work under a lease';

-- Opens a batch: bounds the transaction and checks that the caller still holds its lease.
--
-- Raises SX001 where the lease has passed to another holder. The row stays locked until the batch ends,
-- so a new holder, who has to raise the token first, waits for a batch that is about to commit. One that
-- hangs is found by the session's name, which carries the token, and ended by the new holder; failing
-- that, idle_in_transaction_session_timeout ends it after 10 s.
--
-- durable = false lets the commit return before its WAL is on disk. That is safe where children and
-- tombstone are in this one database: a crash undoes both.
--
-- The planner settings keep to nested loops over indexes. Batches are small, and a plan that turns to
-- scanning a big table would hold locks past every bound.
CREATE FUNCTION "sexton".begin_batch(
    fence_key text,
    fence_token bigint,
    statement_timeout_ms integer,
    lock_timeout_ms integer,
    durable boolean
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    found_token bigint;
BEGIN
    -- The timeouts come first: the fence may be locked by a new holder.
    PERFORM
        pg_catalog.set_config('statement_timeout', statement_timeout_ms::pg_catalog.text, true),
        pg_catalog.set_config('lock_timeout', lock_timeout_ms::pg_catalog.text, true),
        pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true),
        pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true),
        pg_catalog.set_config('enable_seqscan', 'off', true),
        pg_catalog.set_config('enable_bitmapscan', 'off', true),
        pg_catalog.set_config('enable_hashjoin', 'off', true),
        pg_catalog.set_config('enable_mergejoin', 'off', true),
        pg_catalog.set_config('jit', 'off', true),
        -- Policies would hide rows: what cannot be seen would count as gone. Off means an error instead.
        pg_catalog.set_config('row_security', 'off', true),
        pg_catalog.set_config('application_name', "sexton".session_name(fence_key) || '#' || fence_token, true),
        -- A worker's session does not wait for the disk by itself; it keeps what it was configured with.
        pg_catalog.set_config('synchronous_commit', CASE
            WHEN NOT durable THEN 'off'
            WHEN pg_catalog.current_setting('sexton.synchronous_commit', true) <> '' THEN pg_catalog.current_setting('sexton.synchronous_commit')
            ELSE pg_catalog.current_setting('synchronous_commit')
        END, true);

    SELECT fences.token INTO found_token
    FROM "sexton".fences
    WHERE fences.key = fence_key
    FOR SHARE;

    IF found_token IS DISTINCT FROM fence_token THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX001',
            MESSAGE = pg_catalog.format('lease lost: %s', fence_key),
            DETAIL = pg_catalog.format('The batch carries token %s, the fence stands at %s.',
                coalesce(fence_token::pg_catalog.text, 'none'), coalesce(found_token::pg_catalog.text, 'none')),
            HINT = 'Another holder has taken over. Nothing of this batch is kept.';
    END IF;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".begin_batch(text, bigint, integer, integer, boolean) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".begin_batch(text, bigint, integer, integer, boolean) IS
    'Sexton: bounds a batch and checks its lease';

-- What the batches of runs that have not ended have changed, by the run's ID in the jobs database, the session, and the field of the run's
-- statistics: each batch adds its own rows in its own transaction. A run that ends takes its rows along; those of a dead one are added to its
-- statistics by a later run.
CREATE TABLE "sexton".run_counts (
    id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    run_id bigint NOT NULL,
    backend integer NOT NULL,
    field text NOT NULL,
    -- The table that the rows are of, where the field has one number per table.
    label text NOT NULL,
    rows bigint NOT NULL,
    PRIMARY KEY (run_id, backend, field, label)
) WITH (fillfactor = 50);

COMMENT ON TABLE "sexton".run_counts IS 'Sexton: what runs that have not ended have committed';

-- Adds rows to a figure of the run that the transaction belongs to, if any, and returns them. A session is one server process: no two
-- transactions have it at the same time, so none waits for another one's row.
CREATE FUNCTION "sexton".count_rows(of_field text, of_label text, more bigint)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    current_run bigint := nullif(pg_catalog.current_setting('sexton.run', true), '');
BEGIN
    IF more > 0 AND current_run > 0 THEN
        UPDATE "sexton".run_counts AS known
        SET rows = known.rows + more
        WHERE known.run_id = current_run AND known.backend = pg_catalog.pg_backend_pid() AND known.field = of_field AND known.label = of_label;

        IF NOT FOUND THEN
            INSERT INTO "sexton".run_counts (run_id, backend, field, label, rows) VALUES (current_run, pg_catalog.pg_backend_pid(), of_field, of_label, more);
        END IF;
    END IF;

    RETURN more;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".count_rows(text, text, bigint) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".count_rows(text, text, bigint) IS 'Sexton: adds rows of a batch to the figures of its run';

-- The application's tables that functions read where they are there, as "sexton migrate up" has found them.
CREATE TABLE "sexton".application_tables (
    name text PRIMARY KEY,
    relation regclass NOT NULL
);

COMMENT ON TABLE "sexton".application_tables IS 'Sexton: optional tables of the application, as the last migration has found them';

-- Reports whether the application has a table. The name alone says nothing: a view of that name runs its own code with the rights of
-- the function that reads it. Raises SX016 where the name means another relation than the one that the migration has found.
CREATE FUNCTION "sexton".application_table(name text)
RETURNS boolean
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    known pg_catalog.oid := (
        SELECT noted.relation::pg_catalog.oid
        FROM "sexton".application_tables AS noted
        WHERE noted.name OPERATOR(pg_catalog.=) application_table.name
    );
    found pg_catalog.oid := pg_catalog.to_regclass('"public".' OPERATOR(pg_catalog.||) pg_catalog.quote_ident(name));
BEGIN
    IF known OPERATOR(pg_catalog.<>) found THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX016',
            MESSAGE = pg_catalog.format('%s%I is no longer the table that "sexton migrate up" has found', '"public".', name),
            HINT = 'Run "sexton migrate up" again.';
    END IF;

    RETURN known IS NOT NULL AND found IS NOT NULL;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".application_table(text) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".application_table(text) IS 'Sexton: whether the application has an optional table';

-- The search_path of the application's triggers in a batch: the configured one, else what the session would have had if it were
-- not Sexton's, whose own path is the role's setting where sessions go through a pooler.
CREATE FUNCTION "sexton".application_path(configured text)
RETURNS text
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    found_path text;
BEGIN
    IF configured OPERATOR(pg_catalog.<>) '' THEN
        RETURN configured;
    END IF;

    SELECT pg_catalog.substr(setting.value, 13) INTO found_path
    FROM pg_catalog.pg_db_role_setting AS setting_of
    CROSS JOIN LATERAL pg_catalog.unnest(setting_of.setconfig) AS setting (value)
    WHERE setting_of.setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY[
            0::pg_catalog.oid,
            (SELECT database.oid FROM pg_catalog.pg_database AS database WHERE database.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        ])
      AND setting_of.setrole OPERATOR(pg_catalog.=) ANY (ARRAY[
            0::pg_catalog.oid,
            (SELECT role.oid FROM pg_catalog.pg_roles AS role WHERE role.rolname OPERATOR(pg_catalog.=) session_user)
        ])
      AND pg_catalog.starts_with(setting.value, 'search_path=')
      AND setting.value OPERATOR(pg_catalog.<>) 'search_path=pg_catalog, pg_temp'
    ORDER BY setting_of.setrole OPERATOR(pg_catalog.=) 0::pg_catalog.oid, setting_of.setdatabase OPERATOR(pg_catalog.=) 0::pg_catalog.oid
    LIMIT 1;

    RETURN coalesce(found_path, '"$user", public');
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".application_path(text) FROM PUBLIC;

COMMENT ON FUNCTION "sexton".application_path(text) IS 'Sexton: search_path of the application''s triggers in a batch';

INSERT INTO "sexton".objects (kind, identity, component) VALUES
    ('table', '"sexton".fences', 'base'),
    ('table', '"sexton".events', 'base'),
    ('table', '"sexton".run_counts', 'base'),
    ('table', '"sexton".application_tables', 'base'),
    ('function', '"sexton".count_rows(text, text, bigint)', 'base'),
    ('function', '"sexton".application_table(text)', 'base'),
    ('function', '"sexton".session_name(text)', 'base'),
    ('function', '"sexton".begin_batch(text, bigint, integer, integer, boolean)', 'base'),
    ('function', '"sexton".application_path(text)', 'base');
