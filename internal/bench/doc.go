// Package bench measures what Sexton costs and how fast it is, each figure beside a baseline that is taken
// in the same run, since ratios travel from machine to machine and milliseconds do not.
//
// The benchmarks of a Site work in one database with small tables and one definition: rows of children follow
// those of parents. They know the worker only as a function that runs until its context ends. Those of a Cluster
// measure whole drains, pass by pass, on data sets of their own: each variant gets a fresh copy.
package bench

// Definitions are the loose foreign keys of the benchmark's tables.
const Definitions = `children:
  - table: parents
    column: parent_id
    on_delete: async_delete
`

// Tables creates the benchmark's tables: parents is tracked; plain_parents is like it without any trigger;
// native_parents has a foreign key of Postgres's own.
const Tables = `
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
`

// tombstones is where the tracking trigger records, and whose wake trigger is switched on and off.
const tombstones = "loose_foreign_keys_deleted_records"
