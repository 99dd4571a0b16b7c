-- Returns the worker whose River client is the leader, and the time at which its leadership ends.
SELECT leader.leader_id, leader.expires_at FROM "sexton".river_leader AS leader WHERE leader.expires_at > pg_catalog.clock_timestamp();
