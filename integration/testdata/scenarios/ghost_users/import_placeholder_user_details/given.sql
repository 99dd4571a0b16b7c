INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id) VALUES
    (1, 1, 1),
    (2, 2, 1);
