SELECT who(id), state, (SELECT name FROM application_settings) FROM accounts WHERE id = key_of(3);

-- any:
--   cleo | active | delete user 00000000-0000-0000-0000-000000000003: is the only owner of globex
