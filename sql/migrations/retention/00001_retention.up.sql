-- The table has the results of each rule in the last pass. A pass deletes the rows of
-- rules that are no longer configured.
CREATE TABLE IF NOT EXISTS "sexton".retention_rules (
    rule text PRIMARY KEY,
    -- due makes the next pass begin immediately. It is set if due rows are left, or if an
    -- operator retries the rule.
    due boolean NOT NULL,
    -- pending is the number of due rows that the pass left, up to 10,000. capped reports
    -- that there were more. due_since is the time since which passes have left rows.
    pending bigint NOT NULL,
    capped boolean NOT NULL,
    due_since timestamptz,
    dry_run boolean NOT NULL,
    -- kept is the number of due rows that could not be deleted, and last_error the
    -- reason.
    kept bigint NOT NULL,
    last_error text,
    attempts bigint NOT NULL,
    -- The next pass continues after resume_at or resume_number, depending on the type of
    -- the rule's column. They are NULL if the pass begins with the oldest row.
    resume_at timestamptz,
    resume_number bigint,
    checked_at timestamptz NOT NULL
) WITH (fillfactor = 70);

COMMENT ON TABLE "sexton".retention_rules IS 'Sexton: the results of retention rules in the last pass';
