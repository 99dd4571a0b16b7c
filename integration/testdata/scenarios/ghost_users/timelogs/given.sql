INSERT INTO timelogs (id, user_id, project_id, issue_id, time_spent) VALUES
    (1, 1, 100, 100, 3600),
    (2, 2, 100, 100, 3600);
