CREATE TABLE users (id bigint PRIMARY KEY, username text, email text, name text, state text, user_type smallint, admin boolean);
CREATE TABLE application_settings (deletion_adjourned_period integer);
CREATE TABLE groups (id bigint PRIMARY KEY, parent_id bigint REFERENCES groups ON DELETE CASCADE, name text, path text, marked_for_deletion_on date);
CREATE TABLE projects (id bigint PRIMARY KEY, group_id bigint NOT NULL REFERENCES groups ON DELETE CASCADE, path text);
CREATE TABLE members (
    id bigint PRIMARY KEY, user_id bigint, source_type text, source_id bigint, access_level integer, state smallint, requested_at timestamptz, expires_at date
);
CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint NOT NULL REFERENCES projects ON DELETE CASCADE, title text);
CREATE TABLE notes (id bigint PRIMARY KEY, issue_id bigint NOT NULL REFERENCES issues ON DELETE CASCADE, note text);
CREATE INDEX ON groups (parent_id);
CREATE INDEX ON projects (group_id);
CREATE INDEX ON members (source_id);
CREATE INDEX ON issues (project_id);
CREATE INDEX ON notes (issue_id);
{{if eq .Set "ring"}}ALTER TABLE issues ADD next_id bigint REFERENCES issues ON DELETE CASCADE; CREATE INDEX ON issues (next_id);{{end}}
