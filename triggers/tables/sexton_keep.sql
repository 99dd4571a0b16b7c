-- For a table that a native foreign key leads to from rows that are kept. The depth is that of the foreign key's own trigger.
CREATE OR REPLACE TRIGGER "trigger_name"
AFTER "event" ON "parent_schema"."parent_table"
REFERENCING "transition_tables"
FOR EACH STATEMENT
WHEN (pg_catalog.pg_trigger_depth() > 0)
EXECUTE FUNCTION "sexton"."track_function"();
