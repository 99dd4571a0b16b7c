WITH RECURSIVE tree AS (
    SELECT top.id, top.id AS root, top.marked_for_deletion_on FROM "public".groups AS top WHERE top.parent_id IS NULL
    UNION ALL
    SELECT child.id, tree.root, child.marked_for_deletion_on FROM tree JOIN "public".groups AS child ON child.parent_id = tree.id
)
SELECT tree.root FROM tree
LEFT JOIN "public".projects AS project ON project.group_id = tree.id
LEFT JOIN "public".merge_requests AS request ON request.target_project_id = project.id
GROUP BY tree.root HAVING count(tree.marked_for_deletion_on) = 0
ORDER BY count(request.id) DESC, tree.root
