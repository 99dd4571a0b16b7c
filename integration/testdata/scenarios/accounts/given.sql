-- The accounts are Ada, Ben, Cleo and the ghost account, which takes over contributions.
-- Ben owns acme, Cleo owns globex, and Ada is a member of both. Each document has two
-- files, two comments, and one audit event per month.
INSERT INTO accounts VALUES
    (key_of(1), 'ada@example.com'), (key_of(2), 'ben@example.com'), (key_of(3), 'cleo@example.com'), (key_of(9), 'ghost@example.com');
INSERT INTO organizations VALUES (1, 'acme'), (2, 'globex');
INSERT INTO memberships VALUES (1, key_of(1), 'member'), (1, key_of(2), 'owner'), (2, key_of(1), 'member'), (2, key_of(3), 'owner');
INSERT INTO documents VALUES
    (key_of(11), 1, key_of(1), key_of(2), 'Plan'), (key_of(12), 1, key_of(2), key_of(1), 'Report'),
    (key_of(21), 2, key_of(1), key_of(3), 'Budget'), (key_of(22), 2, key_of(3), NULL, 'Minutes');
INSERT INTO comments SELECT 100 * n + row_number() OVER (), id, key_of(n) FROM documents, unnest(ARRAY[1, 3]) AS n;
INSERT INTO attachments SELECT title || n, id, 'uploads', lower(title) || '/' || n FROM documents, generate_series(1, 2) AS n;
INSERT INTO exports VALUES (1, key_of(1), 'ada.zip'), (2, key_of(2), 'ben.zip');
INSERT INTO audit_events
SELECT row_number() OVER (), day, organization_id, id, author_id FROM documents, unnest('{2026-10-15, 2026-11-15}'::date[]) AS day;

CREATE OR REPLACE VIEW removed_files AS
SELECT file ->> 'storage_key' AS storage_key FROM sexton.events, jsonb_array_elements(payload -> 'rows') AS file WHERE kind = 'rows_deleted';
