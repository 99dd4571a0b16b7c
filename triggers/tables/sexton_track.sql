-- This trigger is for an ordinary parent, and for a partitioned parent and each of its
-- partitions. A statement trigger fires only for the table that the DELETE names, so each
-- deletion is recorded once.
CREATE OR REPLACE TRIGGER sexton_track
AFTER DELETE ON "parent_schema"."parent_table"
REFERENCING OLD TABLE AS sexton_deleted
FOR EACH STATEMENT
EXECUTE FUNCTION "sexton"."track_function"('arguments');
