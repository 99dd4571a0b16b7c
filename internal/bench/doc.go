// Package bench measures what Sexton costs and how fast it is. Each figure is compared with a baseline of the
// same run, because ratios are comparable between machines and milliseconds are not.
//
// Drain works on a Cluster: each contender gets a copy of the same data in a database of its own. Latency, Notify
// and Idle work on a Site: one database with small tables, one definition and a running worker.
package bench

import _ "embed"

// Definitions are the loose foreign keys of the tables of a Site.
const Definitions = `children:
  - table: parents
    column: parent_id
    on_delete: async_delete
`

// Tables creates the tables of a Site.
//
//go:embed data/site.sql
var Tables string

// tombstones is the table in which the tracking trigger records deleted parents.
const tombstones = "loose_foreign_keys_deleted_records"
