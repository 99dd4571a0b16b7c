-- Due groups, until nothing is left of them. Marks of this demo are as old as the row's last change; those in the sample data no older
-- than the server.
SELECT 'groups', schedule.group_id, greatest(due.updated_at, pg_postmaster_start_time())
FROM "public".group_deletion_schedules AS schedule JOIN "public".groups AS due ON due.id = schedule.group_id
WHERE due.marked_for_deletion_on < (SELECT "sexton".group_deletion_cutoff())
