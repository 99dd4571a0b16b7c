-- The query finds pending work, children without a parent, and duplicate events.
SELECT 'tombstone', fully_qualified_table_name FROM loose_foreign_keys_deleted_records
UNION ALL SELECT 'account in the queue', user_id::text FROM users_ghost_user_migrations
UNION ALL SELECT 'organization begun', group_id::text FROM sexton.group_destructions
UNION ALL SELECT 'organization failed', group_id::text FROM sexton.group_deletion_failures
UNION ALL SELECT 'document', title FROM documents WHERE organization_id NOT IN (SELECT id FROM organizations)
UNION ALL SELECT 'attachment', id FROM attachments WHERE document_id NOT IN (SELECT id FROM documents)
UNION ALL SELECT 'audit event', id::text FROM audit_events
WHERE organization_id NOT IN (SELECT id FROM organizations) OR document_id NOT IN (SELECT id FROM documents) OR who(account_id) = 'nobody'
UNION ALL SELECT 'file twice', storage_key FROM removed_files GROUP BY 2 HAVING count(*) > 1
UNION ALL SELECT 'event twice', payload::text FROM sexton.events GROUP BY 2 HAVING count(*) > 1;
