// Package sqlfiles embeds the SQL of the database objects that Sexton owns.
//
// The files are plain SQL for psql and sqlc. "public", always in double quotes, is the
// placeholder for the schema of the tracked tables. Package migrate replaces it by the
// configured name.
package sqlfiles

import "embed"

// Migrations has the folder migrations: per component a folder of files
// VERSION_NAME.up.sql, with versions from 1. Each migration can be run again. The
// statements have a fixed form, because package migrate reads the tables and columns from
// them.
//
//go:embed migrations
var Migrations embed.FS

// Functions has the folder functions: per component a folder of files NAME.sql, each with
// one function of that name, its comment, and the views and triggers that use it. Up runs
// these files after the migrations and revokes EXECUTE from PUBLIC. If a function is
// removed, or if its arguments or result change, a migration must drop it.
//
//go:embed functions
var Functions embed.FS

// Grants has the folder grants: per component a file of GRANT statements with the
// variables application, worker and viewer of psql. Package migrate parses them.
//
//go:embed grants
var Grants embed.FS

// Reference has the folder reference, the sample application: schema.sql with unqualified
// names, loose_foreign_keys.yml, and in data one INSERT per table. In the files of data,
// @first and @last are the numbers of the first and last row to insert, @today is the
// current day, and @people is the number of users that are not placeholders. Every other
// @name is the number of rows of the table with that name. session.sql runs first.
//
//go:embed reference
var Reference embed.FS

// Rows has the folder rows: per component a file that inserts the rows which the
// component needs. Each Up runs it.
//
//go:embed rows
var Rows embed.FS
