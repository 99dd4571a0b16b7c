SELECT 'organization', slug, NULL FROM organizations
UNION ALL SELECT 'member', who(account_id), organization_id::text FROM memberships
UNION ALL SELECT 'document', title, NULL FROM documents
UNION ALL SELECT 'comments', count(*)::text, NULL FROM comments
UNION ALL SELECT 'attachments', count(*)::text, NULL FROM attachments
UNION ALL SELECT 'audit events', tableoid::regclass::text, count(*)::text FROM audit_events GROUP BY 2
UNION ALL SELECT 'file removed', storage_key, NULL FROM removed_files
UNION ALL SELECT kind, payload ->> 'group_id', payload ->> 'user_id' FROM sexton.events WHERE kind = 'group_destroyed'
ORDER BY 1, 2;

-- any:
--   attachments | 4 | NULL
--   audit events | audit_events_2026_10 | 2
--   audit events | audit_events_2026_11 | 2
--   comments | 4 | NULL
--   document | Budget | NULL
--   document | Minutes | NULL
--   file removed | plan/1 | NULL
--   file removed | plan/2 | NULL
--   file removed | report/1 | NULL
--   file removed | report/2 | NULL
--   group_destroyed | 1 | 00000000-0000-0000-0000-000000000002
--   member | ada | 2
--   member | cleo | 2
--   organization | globex | NULL
