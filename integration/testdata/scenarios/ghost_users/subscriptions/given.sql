INSERT INTO subscriptions (id, user_id, subscribable_type, subscribable_id) VALUES
    (1, 1, 'Issue', 100),
    (2, 2, 'Issue', 100);
