package bench

import _ "embed"

// Definitions is the definition file for Tables.
const Definitions = `children:
  - table: parents
    column: parent_id
    on_delete: async_delete
`

// Tables holds the SQL statements that create the tables of a Site.
//
//go:embed data/site.sql
var Tables string

// tombstones is the name of the table of tombstones.
const tombstones = "loose_foreign_keys_deleted_records"
