SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM attachments), (SELECT count(*) FROM comments), (SELECT count(document_id) FROM audit_events),
    (SELECT string_agg(storage_key, ' ' ORDER BY storage_key) FROM removed_files);

-- any:
--   3 | 6 | 6 | 6 | plan/1 plan/2
