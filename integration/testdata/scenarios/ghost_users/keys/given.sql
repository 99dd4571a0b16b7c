INSERT INTO keys (id, user_id, title, key, fingerprint_sha256) VALUES
    (1, 1, 'laptop', 'ssh-ed25519', sha256('1')),
    (2, 2, 'laptop', 'ssh-ed25519', sha256('2'));
