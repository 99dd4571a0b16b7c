-- Takes down the group $1 with the groups and projects of its tree. $2 reports whether it will be restored.
WITH RECURSIVE below AS (
    SELECT top.id FROM "public".groups AS top WHERE top.id = $1
    UNION ALL
    SELECT child.id FROM below JOIN "public".groups AS child ON child.parent_id = below.id
)
INSERT INTO demo.marked (group_id, restored, path, groups, projects)
SELECT own.id, $2, own.path, ARRAY(SELECT below.id FROM below),
    ARRAY(SELECT project.id FROM "public".projects AS project JOIN below ON below.id = project.group_id)
FROM "public".groups AS own WHERE own.id = $1
