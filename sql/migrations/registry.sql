-- What Sexton created in this database. "migrate down" drops what stands here and nothing else.
--
-- Every migration adds its entries in its own transaction. The table comes before all migrations and
-- lists itself, so that it cannot be mistaken for a table of somebody else.
CREATE TABLE IF NOT EXISTS "sexton".objects (
    kind text NOT NULL,
    identity text NOT NULL,
    component text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
    PRIMARY KEY (kind, identity)
);

COMMENT ON TABLE "sexton".objects IS 'Sexton: what Sexton created in this database';

INSERT INTO "sexton".objects (kind, identity, component)
VALUES ('table', '"sexton".objects', 'registry')
ON CONFLICT (kind, identity) DO NOTHING;
