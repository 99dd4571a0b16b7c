CREATE TABLE contracts (id bigint PRIMARY KEY, signer_id bigint REFERENCES users);
INSERT INTO contracts VALUES (1, 1);
