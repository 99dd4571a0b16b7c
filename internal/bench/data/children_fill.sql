INSERT INTO parents SELECT id, repeat('x', 60) FROM generate_series(1, {{.All}}) AS id;
{{range .Tables -}}
-- A row takes about 115 bytes.
INSERT INTO {{.}}
SELECT n, {{$.ParentOf}}, {{or $.Filler (and $.Nullify "repeat('x', 46)") "repeat('x', 70)"}}{{if $.Nullify}}, n * 7919 % 1000003, n * 7921 % 1000003, n * 7923 % 1000003{{end}}
FROM generate_series(1, {{$.Rows}}::bigint) AS n;
{{end -}}
{{if eq .Name "slow"}}INSERT INTO grandchildren SELECT n, n FROM generate_series(1, {{.Rows}}::bigint) AS n;{{end}}
