// Package sqlfiles carries the SQL of the database objects that Sexton owns.
//
// The files are plain SQL, readable by psql and sqlc. In them "public", always in double
// quotes, stands for the schema of the tracked tables; a program that runs a file
// replaces it by the configured name.
package sqlfiles

import "embed"

// Migrations holds the folder migrations: per component a folder of files
// VERSION_NAME.up.sql, versions counting from 1. Each can be run again. The statements
// have one form, because package migrate reads from them which tables, columns, indexes
// and views exist afterwards.
//
//go:embed migrations
var Migrations embed.FS

// Functions holds the folder functions: per component a folder of files NAME.sql, each
// with one function of that name, the views and triggers on it, and its comment; the
// installation keeps each from PUBLIC. Each installation runs them after the migrations.
// A function that is removed, or whose arguments or result change, is dropped by a
// migration first.
//
//go:embed functions
var Functions embed.FS

// Grants holds the folder grants: per component a file of GRANT statements with the
// variables application, worker and viewer of psql. Package migrate reads from them what
// the roles need.
//
//go:embed grants
var Grants embed.FS

// Reference holds the folder reference, the sample application: schema.sql, in which no
// name is qualified, loose_foreign_keys.yml, and in data one INSERT per table. There
// @first and @last are the numbers of the rows to make, @today is the day that they are
// seen from, @people the number of users that are no placeholders, and every other @name
// the number of rows of that table; session.sql comes before them all.
//
//go:embed reference
var Reference embed.FS

// Rows holds the folder rows: per component a file that adds the rows which the component
// needs, run after each installation.
//
//go:embed rows
var Rows embed.FS
