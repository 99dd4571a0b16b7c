-- The partition of a new month is created after the installation.
CREATE TABLE IF NOT EXISTS audit_events_2026_12 PARTITION OF audit_events FOR VALUES FROM ('2026-12-01') TO ('2027-01-01');
INSERT INTO audit_events SELECT 100 + id, '2026-12-15', organization_id, document_id, account_id FROM audit_events_2026_11;
