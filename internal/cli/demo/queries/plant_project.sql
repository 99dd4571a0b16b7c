-- Inserts a project in a group of its own, with 5,000 rows that are deleted with it by definitions only. Returns its ID.
WITH own AS (
    INSERT INTO "public".groups (name, path) VALUES ('Precious', $1) RETURNING id
), project AS (
    INSERT INTO "public".projects (group_id, name, path, description) SELECT own.id, 'Precious', 'precious', 'not to be deleted' FROM own RETURNING id
), pipelines AS (
    INSERT INTO "public".ci_pipelines (partition_id, project_id, ref, sha, status)
    SELECT 100, project.id, 'main', md5(n::text), 'success' FROM project, generate_series(1, 100) AS n
    RETURNING id, project_id
), builds AS (
    INSERT INTO "public".p_ci_builds (partition_id, commit_id, project_id, name, stage, status)
    SELECT 100, pipelines.id, pipelines.project_id, 'test ' || n, 'test', 'success' FROM pipelines, generate_series(1, 48) AS n
), uploads AS (
    INSERT INTO "public".uploads (project_id, uploader, path, size)
    SELECT project.id, 'FileUploader', 'file ' || n, n FROM project, generate_series(1, 100) AS n
)
SELECT project.id FROM project
