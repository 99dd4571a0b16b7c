UPDATE "public".import_placeholder_user_details AS detail
SET last_error = CASE WHEN $2::pg_catalog.text OPERATOR(pg_catalog.<>) '' THEN $2::pg_catalog.text END,
    blocked_by = CASE WHEN pg_catalog.cardinality($3::pg_catalog.text[]) OPERATOR(pg_catalog.>) 0 THEN $3::pg_catalog.text[] END,
    updated_at = pg_catalog.statement_timestamp()
WHERE detail.placeholder_user_id OPERATOR(pg_catalog.=) $1 AND (coalesce(detail.last_error, '') OPERATOR(pg_catalog.<>) $2::pg_catalog.text
    OR coalesce(detail.blocked_by, '{}') OPERATOR(pg_catalog.<>) $3::pg_catalog.text[])
