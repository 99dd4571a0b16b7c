DELETE FROM parents WHERE id = 1;
