INSERT INTO personal_access_tokens (id, user_id, name, token_digest, scopes, revoked, expires_at, created_at)
SELECT
    n,
    pg_temp.person(n, 1, @people),
    (ARRAY['release script', 'editor', 'backup', 'dashboard'])[pg_temp.pick(n, 2, 4)],
    encode(sha256(pg_temp.sha(n, 3)::bytea), 'base64'),
    CASE WHEN n % 4 = 0 THEN ARRAY['api'] ELSE ARRAY['read_api', 'read_repository'] END,
    n % 9 = 0,
    @today::timestamptz::date + pg_temp.pick(n, 4, 300)::integer - 60,
    pg_temp.moment(n, @personal_access_tokens, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
