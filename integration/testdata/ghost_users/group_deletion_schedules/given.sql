INSERT INTO groups (id, name, path) VALUES (2, 'Other', 'other');
INSERT INTO group_deletion_schedules (group_id, user_id, marked_for_deletion_on) VALUES
    (1, 1, current_date),
    (2, 2, current_date);
