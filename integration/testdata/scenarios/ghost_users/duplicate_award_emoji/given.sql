-- The ghost user already has one of Ada's emoji from an earlier user.
INSERT INTO users (username, email, name, user_type) VALUES ('ghost', 'ghost@example.com', 'Ghost User', 5);
INSERT INTO award_emoji (id, user_id, awardable_type, awardable_id, name)
SELECT n, users.id, 'Issue', 100, emoji
FROM (VALUES (1, 'ghost', 'tada'), (2, 'ada', 'tada'), (3, 'ada', 'rocket'), (4, 'ben', 'tada')) AS given (n, name, emoji)
JOIN users ON users.username = given.name;
