INSERT INTO resource_state_events (id, user_id, issue_id, state) VALUES
    (1, 1, 100, 2),
    (2, 2, 100, 2);
