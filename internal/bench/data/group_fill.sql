-- Neighbours in a table belong to different projects, the bad case for locality.
INSERT INTO users VALUES (1, 'admin', 'admin@example.com', 'Admin', 'active', 0, true);
INSERT INTO application_settings VALUES (1);
INSERT INTO groups VALUES (1, NULL, 'target', 'target', '2020-01-01'), (2, NULL, 'spared', 'spared', NULL);
INSERT INTO group_deletion_schedules VALUES (1, 1, '2020-01-01');
{{if eq .Set "levels"}}INSERT INTO groups SELECT n, CASE n WHEN 3 THEN 1 ELSE n - 1 END, n, n FROM generate_series(3, 5) AS n;{{end}}
INSERT INTO projects
SELECT n, CASE WHEN n <= {{.Targets}} THEN {{if eq .Set "levels"}}CASE n % 4 WHEN 0 THEN 1 ELSE 2 + n % 4 END{{else}}1{{end}} ELSE 2 END, 'project-' || n
FROM generate_series(1, {{.Projects}}) AS n;
INSERT INTO issues
SELECT n, (n - 1) % {{.Projects}} + 1, repeat('x', 60){{if eq .Set "ring"}}, n + CASE (n - 1) / {{.Projects}} % 10 WHEN 9 THEN -9 ELSE 1 END * {{.Projects}}{{end}}
FROM generate_series(1, {{.Issues}}) AS n;
INSERT INTO notes
SELECT n, (n - 1) % {{.Issues}} + 1, repeat('x', 70) FROM generate_series(1, {{.Notes}}) AS n;
