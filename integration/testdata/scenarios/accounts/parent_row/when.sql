DELETE FROM organizations WHERE id = 1;
DELETE FROM documents WHERE id = key_of(22);
