-- The results of each rule in the last pass. A pass deletes the rows of rules that are no longer configured.
CREATE TABLE IF NOT EXISTS "sexton".retention_rules (
    rule text PRIMARY KEY,
    -- The next pass begins immediately: due rows are left, or an operator retries the rule.
    due boolean NOT NULL,
    -- Due rows that the pass left, up to 10,000, and since when passes leave rows.
    pending bigint NOT NULL,
    capped boolean NOT NULL,
    due_since timestamptz,
    dry_run boolean NOT NULL,
    -- Due rows that could not be deleted, and why.
    kept bigint NOT NULL,
    last_error text,
    attempts bigint NOT NULL,
    -- The value after which the next pass continues, for a column with a time or a number. NULL if it begins with the oldest row.
    resume_at timestamptz,
    resume_number bigint,
    checked_at timestamptz NOT NULL
) WITH (fillfactor = 70);

COMMENT ON TABLE "sexton".retention_rules IS 'Sexton: the results of retention rules in the last pass';
