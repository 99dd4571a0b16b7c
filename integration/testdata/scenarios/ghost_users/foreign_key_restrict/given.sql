-- No list says what becomes of these rows, and the key lets no signer go.
CREATE TABLE contracts (id bigint PRIMARY KEY, signer_id bigint REFERENCES users ON DELETE RESTRICT);
INSERT INTO contracts VALUES (1, 1), (2, 2);
