DELETE FROM owners WHERE id = 1;
DELETE FROM owners_2 WHERE id = 3;
