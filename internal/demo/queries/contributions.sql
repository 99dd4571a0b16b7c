-- What the users had written when their deletion was asked for, with what it belonged to then.
CREATE SCHEMA IF NOT EXISTS demo;
DROP TABLE IF EXISTS demo.contributions;
CREATE UNLOGGED TABLE demo.contributions (
    place text NOT NULL,
    row_id bigint NOT NULL,
    owners jsonb NOT NULL
)
