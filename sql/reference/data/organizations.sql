INSERT INTO organizations (id, name, path, created_at)
SELECT n, 'Default', 'default' || n, @today::timestamptz - interval '800 days'
FROM generate_series(@first::bigint, @last::bigint) AS n;
