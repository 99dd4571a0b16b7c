-- BEFORE, because afterwards there is nothing left to record.
CREATE OR REPLACE TRIGGER sexton_truncate
BEFORE TRUNCATE ON "parent_schema"."parent_table"
FOR EACH STATEMENT
EXECUTE FUNCTION "sexton"."track_function"('arguments');
