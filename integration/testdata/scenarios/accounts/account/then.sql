SELECT 'account', who(id), state, NULL FROM accounts
UNION ALL SELECT 'document', title, who(author_id), who(reviewer_id) FROM documents
UNION ALL SELECT 'comments of', who(account_id), count(*)::text, NULL FROM comments GROUP BY 2
UNION ALL SELECT 'audit events of', who(account_id), count(*)::text, count(document_id)::text FROM audit_events GROUP BY 2
UNION ALL SELECT 'members', slug, string_agg(who(account_id), ' '), NULL FROM memberships JOIN organizations ON organizations.id = organization_id GROUP BY 2
UNION ALL SELECT 'file removed', storage_key, NULL, NULL FROM removed_files
UNION ALL SELECT kind, payload ->> 'user_id', payload ->> 'initiator_user_id', payload ->> 'hard_delete' FROM sexton.events WHERE kind = 'user_destroyed'
ORDER BY 1, 2;

-- soft:
--   account | ben | active | NULL
--   account | cleo | active | NULL
--   account | ghost | active | NULL
--   audit events of | ben | 2 | 2
--   audit events of | cleo | 2 | 2
--   audit events of | ghost | 4 | 4
--   comments of | cleo | 4 | NULL
--   comments of | NULL | 4 | NULL
--   document | Budget | ghost | cleo
--   document | Minutes | cleo | NULL
--   document | Plan | ghost | ben
--   document | Report | ben | NULL
--   file removed | ada.zip | NULL | NULL
--   members | acme | ben | NULL
--   members | globex | cleo | NULL
--   user_destroyed | 00000000-0000-0000-0000-000000000001 | 00000000-0000-0000-0000-000000000002 | false
--
-- hard:
--   account | ben | active | NULL
--   account | cleo | active | NULL
--   account | ghost | active | NULL
--   audit events of | ben | 2 | 2
--   audit events of | cleo | 2 | 2
--   audit events of | ghost | 4 | 0
--   comments of | cleo | 2 | NULL
--   comments of | NULL | 2 | NULL
--   document | Minutes | cleo | NULL
--   document | Report | ben | NULL
--   file removed | ada.zip | NULL | NULL
--   file removed | budget/1 | NULL | NULL
--   file removed | budget/2 | NULL | NULL
--   file removed | plan/1 | NULL | NULL
--   file removed | plan/2 | NULL | NULL
--   members | acme | ben | NULL
--   members | globex | cleo | NULL
--   user_destroyed | 00000000-0000-0000-0000-000000000001 | 00000000-0000-0000-0000-000000000002 | true
