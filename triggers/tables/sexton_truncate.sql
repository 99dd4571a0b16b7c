-- BEFORE, because after TRUNCATE the rows are gone.
CREATE OR REPLACE TRIGGER sexton_truncate
BEFORE TRUNCATE ON "parent_schema"."parent_table"
FOR EACH STATEMENT
EXECUTE FUNCTION "sexton"."track_function"('arguments');
