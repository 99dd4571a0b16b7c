-- Sets the attempts of the user $1 to 0, or to 1 if its job is waiting ($2).
UPDATE {detail}
SET deletion_attempts = $2::boolean::integer, last_deletion_attempt_at = CASE WHEN $2::boolean THEN pg_catalog.statement_timestamp() END,
    updated_at = pg_catalog.statement_timestamp()
WHERE detail.placeholder_user_id OPERATOR(pg_catalog.=) $1 AND detail.namespace_id IS NULL
