-- name: ScheduleLast :one
SELECT last_tick
FROM "sexton".schedules
WHERE kind = @kind
  AND database = @database;

-- name: ScheduleTicks :many
SELECT kind, database, last_tick
FROM "sexton".schedules;

-- name: ScheduleEnter :exec
INSERT INTO "sexton".schedules (kind, database, last_tick)
VALUES (@kind, @database, @last_tick)
ON CONFLICT (kind, database) DO NOTHING;

-- name: ScheduleAdvance :execrows
-- Of all copies that saw the same last tick exactly one gets the row: the others wait for its lock and then
-- find another value.
UPDATE "sexton".schedules
SET last_tick = @tick
WHERE kind = @kind
  AND database = @database
  AND last_tick = @seen;
