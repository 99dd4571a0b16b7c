DO $$
BEGIN
    PERFORM sexton.delete_user(key_of(3), key_of(2));
EXCEPTION WHEN SQLSTATE 'SX011' THEN
    INSERT INTO application_settings VALUES (SQLERRM);
END $$;
