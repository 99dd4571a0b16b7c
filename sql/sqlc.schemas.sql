-- This file is only for the code generator. Migrations do not create the schema, because
-- it already exists.
CREATE SCHEMA "sexton";

-- The generator cannot determine the columns of views on functions.
CREATE TABLE "sexton".backlog (
    deletion_table text NOT NULL,
    pending bigint NOT NULL,
    capped boolean NOT NULL,
    oldest_age_seconds double precision NOT NULL,
    deferred bigint NOT NULL
);

-- The tables have the columns of River's tables that Sexton's statements use. River's own
-- migrations create them.
CREATE TYPE "sexton".river_job_state AS ENUM ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');
CREATE TABLE "sexton".river_job (
    id bigint NOT NULL,
    state "sexton".river_job_state NOT NULL,
    attempt smallint NOT NULL,
    attempted_at timestamptz,
    created_at timestamptz NOT NULL,
    finalized_at timestamptz,
    scheduled_at timestamptz NOT NULL,
    priority smallint NOT NULL,
    args jsonb NOT NULL,
    attempted_by text[],
    kind text NOT NULL,
    metadata jsonb NOT NULL,
    queue text NOT NULL,
    unique_key bytea,
    unique_states bit(8)
);
CREATE TABLE "sexton".river_leader (
    elected_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE TABLE "sexton".river_queue (
    name text NOT NULL,
    metadata jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    paused_at timestamptz
);

-- The generator needs the result columns of this function.
CREATE FUNCTION "sexton".raise_fence(fence_key text, new_token bigint, lock_timeout text)
RETURNS TABLE (token bigint, digest text)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$ SELECT 1, '' $$;
