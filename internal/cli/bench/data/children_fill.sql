INSERT INTO parents SELECT id, repeat('x', 60) FROM generate_series(1, {{.All}}) AS id;
{{range .Tables -}}
-- A row takes about 115 bytes.
INSERT INTO {{.}}
SELECT n, {{$.ParentOf}}, {{if $.Nullifies}}repeat('x', 46), n * 7919 % 1000003, n * 7921 % 1000003, n * 7923 % 1000003{{else}}repeat('x', 70){{end}}
{{- if eq $.Name "retention"}}, now() - CASE WHEN n % 11 > 0 THEN interval '100 days' - n * interval '1 second' ELSE interval '0' END{{end}}
FROM generate_series(1, {{$.Rows}}::bigint) AS n;
{{end -}}
