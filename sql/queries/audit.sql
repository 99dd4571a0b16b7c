-- name: AuditAdd :exec
INSERT INTO "sexton".audit (actor, remote, action, target, reason)
VALUES (@actor, @remote, @action, @target, @reason);

-- name: AuditPrune :execrows
DELETE FROM "sexton".audit
WHERE id IN (
    SELECT old.id
    FROM "sexton".audit AS old
    WHERE old.at < pg_catalog.clock_timestamp() - interval '90 days'
    ORDER BY old.at
    LIMIT 1000
);

-- name: AuditLast :many
SELECT entry.at, entry.actor, entry.remote, entry.action, entry.target, entry.reason
FROM "sexton".audit AS entry
ORDER BY entry.id DESC
LIMIT @most::int;
