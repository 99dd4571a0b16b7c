-- A key without an action is no obstacle once a list names it.
CREATE TABLE contracts (id bigint PRIMARY KEY, signer_id bigint REFERENCES users ON DELETE RESTRICT);
INSERT INTO contracts VALUES (1, 1), (2, 2);
