INSERT INTO deploy_tokens (id, creator_id, project_id, name, token_digest) VALUES
    (1, 1, 100, 'token', 'digest 1'),
    (2, 2, 100, 'token', 'digest 2');
