CREATE SCHEMA IF NOT EXISTS demo;
DROP TABLE IF EXISTS demo.imported;
CREATE UNLOGGED TABLE demo.imported AS
SELECT note.id, note.author_id FROM "public".notes AS note
JOIN "public".users AS author ON author.id = note.author_id AND author.user_type = 15
