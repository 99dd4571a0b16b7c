INSERT INTO award_emoji (id, user_id, awardable_type, awardable_id, name) VALUES
    (1, 1, 'Issue', 100, 'tada'),
    (2, 2, 'Issue', 100, 'tada');
