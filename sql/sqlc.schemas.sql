-- For the code generator alone: migrations find the schema already there.
CREATE SCHEMA "sexton";

-- A view on a function, whose columns the generator cannot tell.
CREATE TABLE "sexton".backlog (
    deletion_table text NOT NULL,
    pending bigint NOT NULL,
    capped boolean NOT NULL,
    oldest_age_seconds double precision NOT NULL,
    deferred bigint NOT NULL
);
