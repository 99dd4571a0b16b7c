DELETE FROM documents WHERE id = key_of(11);
