-- Nobody says what is to become of these rows, and the key lets nobody go.
CREATE TABLE contracts (id bigint PRIMARY KEY, signer_id bigint REFERENCES users ON DELETE RESTRICT);
INSERT INTO contracts VALUES (1, 2);
