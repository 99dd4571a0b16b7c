CREATE TABLE parents (id bigint PRIMARY KEY, filler text);
{{range .Tables -}}
CREATE TABLE {{.}} (id bigint PRIMARY KEY, parent_id bigint, filler text{{if $.Nullify}}, a bigint, b bigint, c bigint{{end}});
{{if ne . "children_bare"}}CREATE INDEX ON {{.}} (parent_id);{{end}}
{{if $.Nullify}}CREATE INDEX ON {{.}} (a); CREATE INDEX ON {{.}} (b); CREATE INDEX ON {{.}} (c);{{end}}
{{end}}
{{if eq .Name "slow" -}}
CREATE TABLE grandchildren (id bigint PRIMARY KEY, child_id bigint REFERENCES children_above ON DELETE CASCADE);
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_catalog.pg_sleep(0.02); RETURN old; END';
CREATE TRIGGER slow BEFORE DELETE ON children_triggered FOR EACH ROW EXECUTE FUNCTION slow();
{{end}}
