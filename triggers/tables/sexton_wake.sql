-- On a deletion table into which work is inserted. The keys are those of the kind's awake lock.
CREATE OR REPLACE TRIGGER sexton_wake
AFTER INSERT ON "queue_schema"."queue_table"
REFERENCING NEW TABLE AS sexton_added
FOR EACH STATEMENT
EXECUTE FUNCTION "sexton"."wake_inserted"('job_kind', 'awake_key_1', 'awake_key_2');
