-- Removes what is recorded of destructions whose group another session has deleted meanwhile.
DELETE FROM "sexton".group_destructions AS destruction
WHERE NOT EXISTS (SELECT FROM "public".groups WHERE groups.id = destruction.group_id)
