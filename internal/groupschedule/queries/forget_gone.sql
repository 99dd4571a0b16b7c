-- Deletes the records of destructions whose group another session has deleted.
DELETE FROM "sexton".group_destructions AS destruction
WHERE NOT EXISTS (SELECT FROM "public".groups WHERE groups.id = destruction.group_id)
