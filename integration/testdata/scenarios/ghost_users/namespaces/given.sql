INSERT INTO namespaces (id, owner_id, name, path) VALUES
    (1, 1, 'own', 'user-1'),
    (2, 2, 'own', 'user-2');
