-- The table has nested partitions. One of them has another order of columns, and one has
-- a foreign key of its own.
CREATE TABLE visits (id bigint, day int, user_id bigint) PARTITION BY LIST (day);
CREATE TABLE visits_1 PARTITION OF visits FOR VALUES IN (1);
CREATE TABLE visits_2 PARTITION OF visits FOR VALUES IN (2) PARTITION BY RANGE (id);
CREATE TABLE visits_2_low PARTITION OF visits_2 FOR VALUES FROM (0) TO (10);
CREATE TABLE visits_2_high (user_id bigint, day int, id bigint);
ALTER TABLE visits_2 ATTACH PARTITION visits_2_high FOR VALUES FROM (10) TO (20);
ALTER TABLE visits_2_high ADD FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
INSERT INTO visits (id, day, user_id) VALUES (1, 1, 1), (2, 2, 1), (12, 2, 1), (3, 1, 2), (13, 2, 2);
