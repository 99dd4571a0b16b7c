INSERT INTO identities (id, user_id, provider, extern_uid) VALUES
    (1, 1, 'ldap', '1'),
    (2, 2, 'ldap', '2');
