INSERT INTO deploy_keys (id, user_id, project_id, title, key) VALUES
    (1, 1, 100, 'key', 'ssh-ed25519'),
    (2, 2, 100, 'key', 'ssh-ed25519');
