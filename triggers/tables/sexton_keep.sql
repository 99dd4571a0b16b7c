-- This trigger is for a table whose rows a native foreign key deletes or changes together
-- with rows that are kept. The condition on the depth is met within the trigger of the
-- foreign key.
CREATE OR REPLACE TRIGGER "trigger_name"
AFTER "event" ON "parent_schema"."parent_table"
REFERENCING "transition_tables"
FOR EACH STATEMENT
WHEN (pg_catalog.pg_trigger_depth() > 0)
EXECUTE FUNCTION "sexton"."track_function"();
