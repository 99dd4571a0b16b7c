-- No list contains the column, and its foreign key is RESTRICT, so the user cannot be
-- deleted.
CREATE TABLE contracts (id bigint PRIMARY KEY, signer_id bigint REFERENCES users ON DELETE RESTRICT);
INSERT INTO contracts VALUES (1, 1), (2, 2);
