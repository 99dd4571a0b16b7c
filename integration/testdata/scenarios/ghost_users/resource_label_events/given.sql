INSERT INTO resource_label_events (id, user_id, issue_id, label_id, action) VALUES
    (1, 1, 100, 1, 1),
    (2, 2, 100, 1, 1);
