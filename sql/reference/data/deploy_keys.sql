INSERT INTO deploy_keys (id, project_id, user_id, title, key, can_push, created_at)
SELECT
    n,
    pg_temp.pick(n, 1, @projects),
    pg_temp.person(n, 2, @people),
    'production server',
    'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI' || pg_temp.sha(n, 3),
    n % 4 = 0,
    pg_temp.moment(n, @deploy_keys, @today)
FROM generate_series(@first::bigint, @last::bigint) AS n;
