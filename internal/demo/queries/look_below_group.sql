-- The group $1 with the groups and projects of its tree.
WITH RECURSIVE below AS (
    SELECT top.id FROM "public".groups AS top WHERE top.id = $1
    UNION ALL
    SELECT child.id FROM below JOIN "public".groups AS child ON child.parent_id = below.id
)
SELECT own.path, ARRAY(SELECT below.id FROM below),
    ARRAY(SELECT project.id FROM "public".projects AS project JOIN below ON below.id = project.group_id)
FROM "public".groups AS own WHERE own.id = $1
