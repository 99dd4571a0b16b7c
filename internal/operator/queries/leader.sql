-- The worker whose cron is the leader now.
SELECT leader.leader_id, leader.expires_at FROM "sexton".river_leader AS leader WHERE leader.expires_at > pg_catalog.clock_timestamp();
