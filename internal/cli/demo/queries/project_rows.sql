-- Returns the number of rows of the project $1 and its children, and a digest of all their columns.
SELECT count(*), coalesce(md5(string_agg(kept.content, E'\n' ORDER BY kept.content COLLATE "C")), '')
FROM (
    SELECT project::text FROM "public".projects AS project WHERE project.id = $1
    UNION ALL
    SELECT pipeline::text FROM "public".ci_pipelines AS pipeline WHERE pipeline.project_id = $1
    UNION ALL
    SELECT build::text FROM "public".p_ci_builds AS build WHERE build.project_id = $1
    UNION ALL
    SELECT upload::text FROM "public".uploads AS upload WHERE upload.project_id = $1
) AS kept (content)
