-- For the code generator alone: migrations find the schema already there.
CREATE SCHEMA "sexton";

-- Views on functions, whose columns the generator cannot tell.
CREATE TABLE "sexton".backlog (
    deletion_table text NOT NULL,
    pending bigint NOT NULL,
    capped boolean NOT NULL,
    oldest_age_seconds double precision NOT NULL,
    deferred bigint NOT NULL
);

-- Of River's tables the columns that statements of ours name. River's own migrations make them.
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

-- Functions whose columns the generator must know.
CREATE FUNCTION "sexton".raise_fence(fence_key text, new_token bigint, lock_timeout text)
RETURNS TABLE (token bigint, digest text)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$ SELECT 1, '' $$;
