-- A foreign key without an action does not prevent the deletion if a list contains its
-- column.
CREATE TABLE contracts (id bigint PRIMARY KEY, signer_id bigint REFERENCES users ON DELETE RESTRICT);
INSERT INTO contracts VALUES (1, 1), (2, 2);
