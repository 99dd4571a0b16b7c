-- The groups that this transaction, subtransactions included, has both marked and scheduled for deletion.
SELECT schedule.group_id
FROM "public".group_deletion_schedules AS schedule
JOIN "public".groups ON groups.id OPERATOR(pg_catalog.=) schedule.group_id
CROSS JOIN (SELECT pg_catalog.age(pg_catalog.pg_current_xact_id()::pg_catalog.xid) AS own) AS transaction
WHERE pg_catalog.age(schedule.xmin) OPERATOR(pg_catalog.<=) transaction.own
  AND pg_catalog.age(groups.xmin) OPERATOR(pg_catalog.<=) transaction.own
ORDER BY schedule.group_id;
