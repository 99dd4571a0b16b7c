DROP FUNCTION IF EXISTS "sexton".backlog_of_placeholder_users();
DROP FUNCTION IF EXISTS "sexton".placeholder_backlog(integer, double precision);
DROP TABLE IF EXISTS "sexton".placeholder_rules;

DELETE FROM "sexton".objects
WHERE identity IN (
    '"sexton".backlog_of_placeholder_users()',
    '"sexton".placeholder_backlog(integer, double precision)',
    '"sexton".placeholder_rules'
);
