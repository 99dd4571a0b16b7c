-- A destruction that has begun goes on without asking, also where its job was lost.
SELECT sexton.delete_group_now(11, 2);
DELETE FROM sexton.river_job;
INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (11, 2);
DELETE FROM members;
