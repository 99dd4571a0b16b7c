-- The groups that have been marked, with what stood below them then, themselves included.
CREATE SCHEMA IF NOT EXISTS demo;
DROP TABLE IF EXISTS demo.marked;
CREATE UNLOGGED TABLE demo.marked (
    group_id bigint NOT NULL,
    restored boolean NOT NULL,
    path text NOT NULL,
    groups bigint[] NOT NULL,
    projects bigint[] NOT NULL
)
