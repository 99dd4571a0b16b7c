-- These values are the defaults of the configuration. A worker replaces them when it
-- starts.
INSERT INTO "sexton".placeholder_rules (max_attempts, retry_seconds) VALUES (15, 172800) ON CONFLICT (one) DO NOTHING;
