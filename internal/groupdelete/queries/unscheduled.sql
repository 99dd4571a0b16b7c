unscheduled AS (DELETE FROM "public".group_deletion_schedules AS schedule USING deleted WHERE schedule.group_id OPERATOR(pg_catalog.=) deleted.id),
