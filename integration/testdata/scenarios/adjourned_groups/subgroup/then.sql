SELECT 'group', id FROM groups UNION ALL SELECT 'project', id FROM projects UNION ALL SELECT 'issue', id FROM issues
UNION ALL SELECT kind, count(*) FROM sexton.events WHERE kind ~ 'destroyed' GROUP BY kind ORDER BY 1, 2;

-- any:
--   group | 10
--   group | 20
--   group_destroyed | 2
--   issue | 1
--   project | 1
--   project_destroyed | 2
