-- root (10) contains child (11), and child contains grandchild (12). other (20) is
-- another group. Ada (2) owns child.
INSERT INTO application_settings (deletion_adjourned_period) VALUES (30);
INSERT INTO users (id, username, email, name, admin) VALUES (1, 'admin', 'admin@example.com', 'Admin', true), (2, 'ada', 'ada@example.com', 'Ada', false);
INSERT INTO groups (id, parent_id, name, path) VALUES
    (10, NULL, 'Root', 'root'), (11, 10, 'Child', 'child'), (12, 11, 'Grandchild', 'grandchild'), (20, NULL, 'Other', 'other');
INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (2, 'Namespace', 11, 50);
