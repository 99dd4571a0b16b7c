-- The deleted rows are counted under the table name of the definition.
SELECT (SELECT count(*) FROM things), (SELECT count(*) FROM things WHERE owner_id IN (1, 3)), stats ->> 'delete_count_by_table'
FROM sexton.runs WHERE changed;

-- any:
--   80 | 0 | {"things":20}
