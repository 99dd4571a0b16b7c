// Package sqlfiles carries the SQL of the database objects that Sexton owns.
//
// The files are plain SQL, readable by psql and sqlc. In them "sexton" stands for the schema of Sexton's
// own tables and "public" for that of the tracked tables, both always in double quotes; whoever runs a
// file replaces them by the configured names.
package sqlfiles

import "embed"

// Migrations holds the folder migrations: registry.sql, which comes before everything, and per component
// a folder of files VERSION_NAME.up.sql and VERSION_NAME.down.sql, versions counting from 1. Down files
// also work where their objects are gone.
//
//go:embed migrations
var Migrations embed.FS

// Grants holds the folder grants: header.sql and a file per component, for psql with the variables
// application, worker and viewer.
//
//go:embed grants
var Grants embed.FS
