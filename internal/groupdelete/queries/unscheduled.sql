unscheduled AS (DELETE FROM "public".group_deletion_schedules AS schedule USING gone WHERE schedule.group_id OPERATOR(pg_catalog.=) gone.id),
