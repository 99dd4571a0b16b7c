SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM attachments), (SELECT count(*) FROM comments), (SELECT count(document_id) FROM audit_events),
    (SELECT row_to_json(d) FROM documents AS d WHERE id = key_of(11));

-- any:
--   4 | 8 | 8 | 8 | {"id":"00000000-0000-0000-0000-000000000011","organization_id":1,"author_id":"00000000-0000-0000-0000-000000000001","reviewer_id":"00000000-0000-0000-0000-000000000002","title":"Plan"}
