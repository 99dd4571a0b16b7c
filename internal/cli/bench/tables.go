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

// tombstones is the table with the deleted parents.
const tombstones = "loose_foreign_keys_deleted_records"
