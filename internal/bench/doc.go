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

// Tables creates the benchmark's tables.
func Tables() string { return text("site.sql", nil) }

// tombstones is where the tracking trigger records, and whose wake trigger is switched on and off.
const tombstones = "loose_foreign_keys_deleted_records"
