-- The columns that name a group or a project, and which of the two.
SELECT class.relname, attribute.attname, CASE WHEN attribute.attname IN ('project_id', 'target_project_id') THEN 'projects' ELSE 'groups' END
FROM pg_class AS class
JOIN pg_attribute AS attribute ON attribute.attrelid = class.oid AND NOT attribute.attisdropped
WHERE class.relnamespace = $1::text::regnamespace AND class.relkind IN ('r', 'p') AND NOT class.relispartition
AND attribute.attname IN ('group_id', 'namespace_id', 'shared_group_id', 'shared_with_group_id', 'project_id', 'target_project_id')
ORDER BY 1, 2
