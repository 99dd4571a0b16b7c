INSERT INTO user_achievements (id, achievement_id, user_id, awarded_by_user_id, revoked_by_user_id) VALUES
    (1, 1, 1, 2, 2),
    (2, 1, 2, 1, 2),
    (3, 1, 2, 2, 1),
    (4, 1, 2, 2, 2);
