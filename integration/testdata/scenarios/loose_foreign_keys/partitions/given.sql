-- Parents and children have nested partitions. One row is deleted directly from a
-- partition.
CREATE TABLE owners (id bigint, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE owners_1 PARTITION OF owners FOR VALUES IN (1);
CREATE TABLE owners_2 PARTITION OF owners FOR VALUES IN (2);
CREATE TABLE things (id bigint, owner_id bigint, part int) PARTITION BY LIST (part);
CREATE TABLE things_1 PARTITION OF things FOR VALUES IN (1);
CREATE TABLE things_2 PARTITION OF things FOR VALUES IN (2) PARTITION BY RANGE (id);
CREATE TABLE things_2a PARTITION OF things_2 FOR VALUES FROM (0) TO (50);
CREATE TABLE things_2b PARTITION OF things_2 FOR VALUES FROM (50) TO (1000);
CREATE INDEX ON things (owner_id);
INSERT INTO owners SELECT n, n % 2 + 1 FROM generate_series(1, 10) AS n;
INSERT INTO things SELECT n, n % 10 + 1, n % 2 + 1 FROM generate_series(0, 99) AS n;
