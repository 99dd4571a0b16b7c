INSERT INTO keys (id, user_id, title, key, fingerprint_sha256, created_at, last_used_at)
SELECT
    n,
    user_id,
    (ARRAY['laptop', 'workstation', 'build server', 'phone'])[pg_temp.pick(n, 2, 4)],
    'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI' || pg_temp.sha(n, 3),
    sha256(pg_temp.sha(n, 3)::bytea),
    pg_temp.moment(n, @keys, @today),
    CASE WHEN n % 3 > 0 THEN @today::timestamptz - pg_temp.pick(n, 4, 1000) * interval '1 minute' END
FROM generate_series(@first::bigint, @last::bigint) AS n
CROSS JOIN LATERAL pg_temp.pick(n, 1, @people) AS user_id;
