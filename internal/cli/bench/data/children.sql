CREATE TABLE parents (id bigint PRIMARY KEY, filler text);
{{range .Tables -}}
CREATE TABLE {{.}} (id bigint PRIMARY KEY, parent_id bigint, filler text{{if $.Nullifies}}, a bigint, b bigint, c bigint{{end}}{{if eq $.Name "retention"}}, at timestamptz{{end}});
CREATE INDEX ON {{.}} ({{if eq $.Name "retention"}}at{{else}}parent_id{{end}});
{{if $.Nullifies}}CREATE INDEX ON {{.}} (a); CREATE INDEX ON {{.}} (b); CREATE INDEX ON {{.}} (c);{{end}}
{{end}}
{{if eq .Name "slow" -}}
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_catalog.pg_sleep(0.02); RETURN old; END';
CREATE TRIGGER slow BEFORE DELETE ON children FOR EACH ROW EXECUTE FUNCTION slow();
{{end}}
