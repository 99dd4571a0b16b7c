-- The job that destroys organizations does not keep its deletions for undo.
SELECT (SELECT count(*) FROM organizations), (SELECT count(*) FROM memberships), (SELECT string_agg(title, ' ' ORDER BY title) FROM documents),
    (SELECT count(*) FROM attachments), (SELECT count(*) FROM comments), (SELECT count(*) FROM audit_events), (SELECT count(document_id) FROM audit_events);

-- any:
--   1 | 2 | Budget Minutes | 4 | 4 | 4 | 4
