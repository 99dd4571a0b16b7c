-- name: ScheduleLast :one
SELECT last_tick
FROM "sexton".schedules
WHERE kind = @kind
  AND database = @database;

-- name: ScheduleTicks :many
SELECT kind, database, last_tick, ticked
FROM "sexton".schedules;

-- name: ScheduleInsert :exec
INSERT INTO "sexton".schedules (kind, database, last_tick, ticked)
VALUES (@kind, @database, @last_tick, false)
ON CONFLICT (kind, database) DO NOTHING;

-- name: ScheduleAdvance :exec
-- Records a tick. It never moves the last tick back, because a suspended leader may
-- resume after another leader has taken over.
UPDATE "sexton".schedules
SET last_tick = greatest(last_tick, @tick),
    ticked = true
WHERE kind = @kind
  AND database = @database;
