-- All scenarios delete parent 1.
CREATE TABLE parents (id bigint PRIMARY KEY);
INSERT INTO parents SELECT generate_series(1, 3);
