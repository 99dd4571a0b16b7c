-- The tables of a site. parents is tracked. plain_parents has the same columns and no triggers. native_parents is referenced by a native foreign key.
CREATE TABLE parents (id bigint PRIMARY KEY, filler text);
CREATE TABLE children (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, parent_id bigint, filler text);
CREATE INDEX ON children (parent_id);
CREATE TABLE plain_parents (id bigint PRIMARY KEY, filler text);
CREATE TABLE native_parents (id bigint PRIMARY KEY, filler text);
CREATE TABLE native_children (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    parent_id bigint REFERENCES native_parents ON DELETE CASCADE,
    filler text
);
CREATE INDEX ON native_children (parent_id);
