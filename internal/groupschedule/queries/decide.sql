-- Decides about group $1, whose destruction would begin at $2.
SELECT decided.outcome, coalesce(pg_catalog.to_jsonb(decided.user_id), '0'), coalesce(decided.path, ''), coalesce(decided.reason, '')
FROM "sexton".decide_group_deletion($1, $2) AS decided
