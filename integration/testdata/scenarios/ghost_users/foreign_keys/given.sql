-- No list contains these columns, so the actions of the foreign keys apply.
CREATE TABLE badges (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
CREATE TABLE rooms (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE SET NULL);
CREATE TABLE keepers (id bigint PRIMARY KEY, user_id bigint DEFAULT 2 REFERENCES users ON DELETE SET DEFAULT);
INSERT INTO badges VALUES (1, 1), (2, 2);
INSERT INTO rooms VALUES (1, 1), (2, 2);
INSERT INTO keepers VALUES (1, 1), (2, 2);
ALTER TABLE users ADD invited_by_id bigint REFERENCES users ON DELETE SET NULL;
UPDATE users SET invited_by_id = 1 WHERE username = 'ben';
