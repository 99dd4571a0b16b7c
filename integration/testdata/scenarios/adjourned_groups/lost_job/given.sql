-- A destruction that has begun continues although its job was lost and its user is no
-- longer an owner.
SELECT sexton.delete_group_now(11, 2);
DELETE FROM sexton.river_job;
INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (11, 2);
DELETE FROM members;
