-- The tables form a chain and a cycle. One table refers to itself, and one has two
-- columns that refer to the same parent.
CREATE TABLE a (id bigint PRIMARY KEY, b_id bigint, a_id bigint);
CREATE TABLE b (id bigint PRIMARY KEY, a_id bigint, other_a_id bigint);
CREATE INDEX ON a (b_id); CREATE INDEX ON a (a_id); CREATE INDEX ON b (a_id); CREATE INDEX ON b (other_a_id);
INSERT INTO a SELECT n, n, n - 1 FROM generate_series(1, 50) AS n;
INSERT INTO b SELECT n, n - 1, n FROM generate_series(1, 50) AS n;
