-- Who this installation is, to others that may use the same store of objects. A copy of the database has the same number, so
-- "sexton".external_diff_place says where the database is as well.
CREATE TABLE "sexton".external_diff_installation (
    id uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);

CREATE UNIQUE INDEX external_diff_installation_one_idx ON "sexton".external_diff_installation ((true));

COMMENT ON TABLE "sexton".external_diff_installation IS 'Sexton: who this installation is, as stores of diffs have it in their markers';

INSERT INTO "sexton".external_diff_installation DEFAULT VALUES;

-- The stores that diffs were moved to, and how far each has been looked through for objects that no row refers to.
CREATE TABLE "sexton".external_diff_stores (
    -- the URL with what tells one store from another, without anything secret
    store text PRIMARY KEY,
    first_used_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    -- What the store's marker has to say; next_seal while it is being changed. The marker and the seal change every hour, so a
    -- copy of the whole server, which no identifier tells from the original, falls behind.
    seal uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid(),
    next_seal uuid,
    -- NULL until the marker has been seen in the store
    sealed_at timestamptz,
    -- A server that was started anew may be a copy that was started beside the original. Until then it changes no seal and
    -- sweeps nothing; the original does, and the copy is found out.
    server_started_at timestamptz NOT NULL DEFAULT pg_catalog.pg_postmaster_start_time(),
    hold_until timestamptz,
    -- The round in progress or, where it has ended, the last one. It goes on after the key sweep_after.
    sweep_after text NOT NULL DEFAULT '',
    sweep_began_at timestamptz,
    sweep_ended_at timestamptz,
    listed bigint NOT NULL DEFAULT 0,
    swept bigint NOT NULL DEFAULT 0,
    -- objects that are not named as those of diffs are
    foreign_objects bigint NOT NULL DEFAULT 0,
    -- objects without a row that stay, as there are too many of them at once
    held_back bigint NOT NULL DEFAULT 0
);

COMMENT ON TABLE "sexton".external_diff_stores IS 'Sexton: stores of diffs, their seals, and the search for objects that no row refers to';

-- Where this database is: the server's identifier, which every initdb makes anew and replicas share, and the database's number.
-- A dump that is restored elsewhere has another one. Services that keep the identifier to themselves leave it out.
CREATE FUNCTION "sexton".external_diff_place()
RETURNS text
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $sexton$
DECLARE
    number oid := (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database());
BEGIN
    RETURN (SELECT system_identifier FROM pg_catalog.pg_control_system()) || '/' || number;
EXCEPTION
    WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN
        RETURN 'unknown/' || number;
END;
$sexton$;

REVOKE ALL ON FUNCTION "sexton".external_diff_place() FROM PUBLIC;

COMMENT ON FUNCTION "sexton".external_diff_place() IS 'Sexton: which server and database this is';

INSERT INTO "sexton".objects (kind, identity, component) VALUES
    ('table', '"sexton".external_diff_installation', 'external_diffs'),
    ('table', '"sexton".external_diff_stores', 'external_diffs'),
    ('function', '"sexton".external_diff_place()', 'external_diffs');
