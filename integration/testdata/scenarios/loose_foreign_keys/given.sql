-- Parent 1 goes in all scenarios.
CREATE TABLE parents (id bigint PRIMARY KEY);
INSERT INTO parents SELECT generate_series(1, 3);
