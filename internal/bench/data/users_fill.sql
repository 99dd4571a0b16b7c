INSERT INTO users (id, username, email, name, user_type)
SELECT id, 'user' || id, id || '@example.com', 'User ' || id, CASE id WHEN {{.Ghost}} THEN 5 ELSE 0 END
FROM generate_series({{.Ghost}}, {{.Last}}) AS id;
INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
{{range .Tables -}}
{{if eq .Table "notes" -}}
INSERT INTO notes (id, noteable_type, noteable_id, author_id, note)
SELECT n, 'Issue', n % {{$.Issues}}, {{$.Owner}}, repeat('x', 60)
{{- else if eq .Table "issues" -}}
INSERT INTO issues (id, project_id, author_id, title)
SELECT n, 1, {{$.Owner}}, repeat('x', 60)
{{- else if eq .Table "award_emoji" -}}
INSERT INTO award_emoji (id, user_id, awardable_type, awardable_id, name)
SELECT n, {{$.Owner}}, 'Issue', n, 'thumbsup'
{{- else -}}
INSERT INTO resource_label_events (id, issue_id, user_id, action)
SELECT n, 1 + n % 1000, {{$.Owner}}, 1
{{- end}}
FROM generate_series(1, {{$.Rows .}}::bigint) AS n;
{{if .Double -}}
-- The ghost user has the like of every second row.
INSERT INTO award_emoji (id, user_id, awardable_type, awardable_id, name)
SELECT 2 * {{.Each}} + n, {{$.Ghost}}, 'Issue', n, 'thumbsup' FROM generate_series(2, {{$.Rows .}}, 2) AS n;
{{end -}}
{{end}}
