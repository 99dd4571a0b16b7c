-- The tables resemble Pagila, a sample database of a film rental. It has foreign keys with ON UPDATE CASCADE and RESTRICT, and partitions
-- with foreign keys.
CREATE TABLE language (language_id int PRIMARY KEY);
CREATE TABLE film (
    film_id int PRIMARY KEY,
    language_id int NOT NULL REFERENCES language ON UPDATE CASCADE ON DELETE RESTRICT,
    original_language_id int REFERENCES language ON DELETE SET NULL
);
CREATE TABLE actor (actor_id int PRIMARY KEY);
CREATE TABLE film_actor (
    actor_id int REFERENCES actor ON UPDATE CASCADE ON DELETE CASCADE,
    film_id int REFERENCES film ON DELETE CASCADE,
    PRIMARY KEY (actor_id, film_id)
);
CREATE TABLE inventory (inventory_id int PRIMARY KEY, film_id int NOT NULL REFERENCES film ON DELETE CASCADE);
CREATE TABLE customer (customer_id int PRIMARY KEY);
CREATE TABLE rental (
    rental_id int PRIMARY KEY,
    inventory_id int NOT NULL REFERENCES inventory ON DELETE RESTRICT,
    customer_id int NOT NULL REFERENCES customer ON DELETE CASCADE
);
CREATE TABLE payment (payment_id int, customer_id int NOT NULL, rental_id int, paid_on date NOT NULL, PRIMARY KEY (paid_on, payment_id)) PARTITION BY RANGE (paid_on);
CREATE TABLE payment_2022_01 PARTITION OF payment FOR VALUES FROM ('2022-01-01') TO ('2022-02-01');
CREATE TABLE payment_2022_02 PARTITION OF payment FOR VALUES FROM ('2022-02-01') TO ('2022-03-01');
ALTER TABLE payment ADD FOREIGN KEY (customer_id) REFERENCES customer ON DELETE CASCADE;
ALTER TABLE payment_2022_01 ADD FOREIGN KEY (rental_id) REFERENCES rental ON DELETE SET NULL;
CREATE TABLE receipt (
    receipt_id int PRIMARY KEY, payment int, "the day" date, copy_of int REFERENCES receipt ON DELETE CASCADE,
    FOREIGN KEY (payment, "the day") REFERENCES payment (payment_id, paid_on) ON DELETE CASCADE
);
INSERT INTO language VALUES (1), (2), (3), (4);
INSERT INTO film SELECT n, n % 2 + 1, n % 3 + 2 FROM generate_series(1, 20) AS n;
INSERT INTO actor VALUES (1), (2), (3);
INSERT INTO film_actor SELECT n % 3 + 1, n FROM generate_series(1, 20) AS n;
INSERT INTO inventory SELECT n, n % 20 + 1 FROM generate_series(1, 30) AS n;
INSERT INTO customer SELECT generate_series(1, 8);
INSERT INTO rental SELECT n, n % 15 + 1, n % 8 + 1 FROM generate_series(1, 60) AS n;
INSERT INTO payment SELECT n, n % 8 + 1, n % 60 + 1, '2022-01-15'::date + n % 2 * 31 FROM generate_series(1, 80) AS n;
INSERT INTO receipt SELECT n, n, '2022-01-15'::date + n % 2 * 31, nullif(n / 2, 0) FROM generate_series(1, 40) AS n;
