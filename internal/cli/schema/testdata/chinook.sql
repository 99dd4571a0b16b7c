-- The tables resemble Chinook, a sample database of a music shop. Here, some foreign keys have actions.
CREATE TABLE artist (artist_id int PRIMARY KEY, name text);
CREATE TABLE album (album_id int PRIMARY KEY, title text, artist_id int NOT NULL REFERENCES artist ON DELETE CASCADE);
CREATE TABLE media_type (media_type_id int PRIMARY KEY);
CREATE TABLE genre (genre_id int PRIMARY KEY);
CREATE TABLE track (
    track_id int PRIMARY KEY,
    album_id int REFERENCES album ON DELETE CASCADE,
    media_type_id int NOT NULL REFERENCES media_type,
    genre_id int REFERENCES genre ON DELETE SET NULL
);
CREATE TABLE playlist (playlist_id int PRIMARY KEY);
CREATE TABLE playlist_track (
    playlist_id int REFERENCES playlist ON DELETE CASCADE,
    track_id int REFERENCES track ON DELETE CASCADE,
    PRIMARY KEY (playlist_id, track_id)
);
CREATE TABLE employee (employee_id int PRIMARY KEY, reports_to int REFERENCES employee ON DELETE SET NULL);
CREATE TABLE customer (customer_id int PRIMARY KEY, support_rep_id int REFERENCES employee ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE invoice (invoice_id int PRIMARY KEY, customer_id int NOT NULL REFERENCES customer ON DELETE CASCADE);
CREATE TABLE invoice_line (
    invoice_line_id int PRIMARY KEY,
    invoice_id int NOT NULL REFERENCES invoice ON DELETE CASCADE,
    quantity int
);
CREATE INDEX ON album (artist_id);
CREATE INDEX ON invoice (customer_id);
INSERT INTO artist SELECT n, 'artist ' || n FROM generate_series(1, 6) AS n;
INSERT INTO album SELECT n, 'album ' || n, n % 6 + 1 FROM generate_series(1, 20) AS n;
INSERT INTO media_type VALUES (1), (2), (3);
INSERT INTO genre VALUES (1), (2), (3);
INSERT INTO track SELECT n, n % 20 + 1, n % 2 + 1, n % 3 + 1 FROM generate_series(1, 120) AS n;
INSERT INTO playlist VALUES (1), (2), (3);
INSERT INTO playlist_track SELECT n % 3 + 1, n FROM generate_series(1, 120) AS n;
INSERT INTO employee SELECT n, nullif(n / 2, 0) FROM generate_series(1, 9) AS n;
INSERT INTO customer SELECT n, n % 9 + 1 FROM generate_series(1, 20) AS n;
INSERT INTO invoice SELECT n, n % 20 + 1 FROM generate_series(1, 60) AS n;
INSERT INTO invoice_line SELECT n, n % 60 + 1, n FROM generate_series(1, 200) AS n;
