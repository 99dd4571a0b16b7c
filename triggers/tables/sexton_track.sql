-- On a plain parent, a partitioned parent and each of its partitions: a statement trigger fires for the
-- table that the DELETE names and for no other, so each deletion is recorded once.
CREATE OR REPLACE TRIGGER sexton_track
AFTER DELETE ON "parent_schema"."parent_table"
REFERENCING OLD TABLE AS sexton_deleted
FOR EACH STATEMENT
EXECUTE FUNCTION "sexton"."track_function"('arguments');
