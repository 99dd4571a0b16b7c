SELECT (SELECT count(*) FROM organizations), (SELECT count(*) FROM memberships), (SELECT string_agg(title, ' ') FROM documents), (SELECT count(*) FROM attachments),
    (SELECT count(*) FROM comments), (SELECT count(*) FROM audit_events), (SELECT count(document_id) FROM audit_events), (SELECT count(*) FROM removed_files);

-- any:
--   1 | 2 | Budget | 2 | 2 | 4 | 2 | 6
