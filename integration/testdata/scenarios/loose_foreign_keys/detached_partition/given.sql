-- A partition that was detached after the deletion is not changed.
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint) PARTITION BY LIST (id);
CREATE TABLE children_1 PARTITION OF children FOR VALUES IN (1);
CREATE TABLE children_2 PARTITION OF children FOR VALUES IN (2);
CREATE INDEX ON children (parent_id);
INSERT INTO children VALUES (1, 1), (2, 1);
