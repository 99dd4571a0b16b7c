INSERT INTO personal_access_tokens (id, user_id, name, token_digest, scopes) VALUES
    (1, 1, 'token', 'digest 1', '{api}'),
    (2, 2, 'token', 'digest 2', '{api}');
