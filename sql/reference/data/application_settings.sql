INSERT INTO application_settings (id, deletion_adjourned_period, created_at, updated_at)
SELECT n, 30, @today::timestamptz - interval '800 days', @today::timestamptz - interval '100 days'
FROM generate_series(@first::bigint, @last::bigint) AS n;
