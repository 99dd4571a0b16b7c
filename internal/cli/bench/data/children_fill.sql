INSERT INTO parents SELECT id, repeat('x', 60) FROM generate_series(1, {{.All}}) AS id;
{{range .Tables -}}
-- A row takes about 115 bytes.
INSERT INTO {{.}}
SELECT n, {{$.ParentOf}}, {{if $.Nullifies}}repeat('x', 46), n * 7919 % 1000003, n * 7921 % 1000003, n * 7923 % 1000003{{else}}repeat('x', 70){{end}}
FROM generate_series(1, {{$.Rows}}::bigint) AS n;
{{end -}}
