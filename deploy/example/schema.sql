-- Issues refer to projects by a definition in loose_foreign_keys.yml instead of a foreign
-- key.
CREATE TABLE projects (id bigint PRIMARY KEY);
CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint NOT NULL);
CREATE INDEX ON issues (project_id);
INSERT INTO projects SELECT generate_series(1, 10);
INSERT INTO issues SELECT id, id % 10 + 1 FROM generate_series(1, 1000) AS id;
