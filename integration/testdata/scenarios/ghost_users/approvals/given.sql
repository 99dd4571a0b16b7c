INSERT INTO approvals (id, user_id, merge_request_id) VALUES
    (1, 1, 100),
    (2, 2, 100);
