INSERT INTO identities (id, user_id, provider, extern_uid, created_at)
SELECT
    n,
    pg_temp.pick(n, 1, @people),
    (ARRAY['saml', 'ldapmain', 'openid_connect'])[pg_temp.pick(n, 2, 3)],
    'uid-' || n,
    pg_temp.moment(n, @identities, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
