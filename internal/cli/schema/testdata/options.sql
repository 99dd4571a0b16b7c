-- The foreign keys have names and options that are not the defaults.
CREATE TABLE owners (id bigint PRIMARY KEY, number bigint);
CREATE TABLE places (tenant bigint, id bigint, PRIMARY KEY (tenant, id));
CREATE TABLE pets (id bigint PRIMARY KEY, owner_id bigint, CONSTRAINT fk_rails_0123456789 FOREIGN KEY (owner_id) REFERENCES owners ON DELETE CASCADE);
CREATE TABLE toys (id bigint PRIMARY KEY, owner_id bigint, CONSTRAINT "Toys: ${owner}" FOREIGN KEY (owner_id) REFERENCES owners
    ON DELETE SET NULL ON UPDATE RESTRICT DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE beds (id bigint PRIMARY KEY, owner_id bigint, CONSTRAINT fk_rails_0123456789 FOREIGN KEY (owner_id) REFERENCES owners
    ON DELETE CASCADE DEFERRABLE);
CREATE TABLE walks (id bigint PRIMARY KEY, tenant bigint, place_id bigint, CONSTRAINT walks_places FOREIGN KEY (tenant, place_id) REFERENCES places
    MATCH FULL ON DELETE CASCADE);
CREATE TABLE meals (id bigint, owner_id bigint, CONSTRAINT fk_meals FOREIGN KEY (owner_id) REFERENCES owners ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED)
    PARTITION BY LIST (id);
CREATE TABLE meals_1 PARTITION OF meals FOR VALUES IN (1, 2, 3);
CREATE TABLE meals_2 PARTITION OF meals DEFAULT;
CREATE TABLE licences (id bigint PRIMARY KEY, owner_id bigint REFERENCES owners);
INSERT INTO owners SELECT n, n FROM generate_series(1, 6) AS n;
INSERT INTO places SELECT n % 2, n FROM generate_series(1, 6) AS n;
INSERT INTO pets SELECT n, n % 6 + 1 FROM generate_series(1, 20) AS n;
INSERT INTO toys SELECT n, n % 6 + 1 FROM generate_series(1, 20) AS n;
INSERT INTO beds SELECT n, n % 6 + 1 FROM generate_series(1, 20) AS n;
INSERT INTO walks SELECT n, (n % 6 + 1) % 2, n % 6 + 1 FROM generate_series(1, 20) AS n;
INSERT INTO meals SELECT n, n % 6 + 1 FROM generate_series(1, 20) AS n;
INSERT INTO licences VALUES (1, 1);
