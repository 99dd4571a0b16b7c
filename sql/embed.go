// Package sqlfiles carries the SQL of the database objects that Sexton owns.
//
// The files are plain SQL, readable by psql and sqlc. In them "sexton" stands for the schema of Sexton's
// own tables and "public" for that of the tracked tables, both always in double quotes; a program that runs a
// file replaces them by the configured names.
package sqlfiles

import "embed"

// Migrations holds the folder migrations: registry.sql, which comes before everything, and per component
// a folder of files VERSION_NAME.up.sql, versions counting from 1. They make and change tables, and list in the registry what is to be removed again.
//
//go:embed migrations
var Migrations embed.FS

// Functions holds the folder functions: per component a folder of files NAME.sql, each with one function, the views and
// triggers on it, and its comment; the installation keeps each from PUBLIC. They are installed anew after the migrations whenever their text differs from
// what was installed last, so every file can be run again. A function that goes, or whose arguments or result change, is
// dropped by a migration first.
//
//go:embed functions
var Functions embed.FS

// Grants holds the folder grants: header.sql, roles.sql, which creates the roles, tables.sql for the application's tables, and a file
// per component, with psql's variables application, worker and viewer, and tables.
//
//go:embed grants
var Grants embed.FS

// Reference holds the folder reference, the sample application: schema.sql, in which no name is qualified,
// loose_foreign_keys.yml, and in data one INSERT per table. There @first and @last are the numbers of the rows
// to make, @today is the day that they are seen from, @people the number of users that are no placeholders, and
// every other @name the number of rows of that table; session.sql comes before them all.
//
//go:embed reference
var Reference embed.FS
