INSERT INTO deploy_tokens (id, project_id, creator_id, name, token_digest, revoked, created_at)
SELECT
    n,
    pg_temp.pick(n, 1, @projects),
    pg_temp.person(n, 2, @people),
    'registry reader',
    encode(sha256(pg_temp.sha(n, 3)::bytea), 'base64'),
    n % 6 = 0,
    pg_temp.moment(n, @deploy_tokens, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
