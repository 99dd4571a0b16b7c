INSERT INTO abuse_reports (id, user_id, reporter_id, message) VALUES
    (1, 1, 2, 'about Ada'),
    (2, 2, 1, 'by Ada'),
    (3, 2, 2, 'by Ben about himself');
