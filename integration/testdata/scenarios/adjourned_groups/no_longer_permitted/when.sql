UPDATE users SET admin = false WHERE id = 1;
DELETE FROM users WHERE id = 2;
