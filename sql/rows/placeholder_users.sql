-- The defaults of the configuration, until a worker has started.
INSERT INTO "sexton".placeholder_rules (max_attempts, retry_seconds) VALUES (15, 172800) ON CONFLICT (one) DO NOTHING;
