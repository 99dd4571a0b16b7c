-- The trigger fires BEFORE TRUNCATE, because TRUNCATE leaves no rows for an AFTER
-- trigger.
CREATE OR REPLACE TRIGGER sexton_truncate
BEFORE TRUNCATE ON "parent_schema"."parent_table"
FOR EACH STATEMENT
EXECUTE FUNCTION "sexton"."track_function"('arguments');
