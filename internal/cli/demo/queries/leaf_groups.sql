SELECT leaf.id FROM "public".groups AS leaf
WHERE leaf.marked_for_deletion_on IS NULL AND NOT EXISTS (SELECT FROM "public".groups AS child WHERE child.parent_id = leaf.id)
AND EXISTS (SELECT FROM "public".projects AS project WHERE project.group_id = leaf.id)
AND NOT EXISTS (
    SELECT FROM "public".groups AS above WHERE above.id = ANY (leaf.traversal_ids) AND above.marked_for_deletion_on IS NOT NULL
)
ORDER BY (
    SELECT count(*) FROM "public".projects AS project JOIN "public".merge_requests AS request ON request.target_project_id = project.id
    WHERE project.group_id = leaf.id
) DESC, leaf.id
