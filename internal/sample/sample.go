// Package sample is the reference application: its schema, its loose foreign key definitions and made-up data. The demo shows what
// Sexton does on it, and tests find in it what a real application has.
//
// The SQL is in sql/reference; this package only reads and drives it.
package sample

import sqlfiles "sexton/sql"

// Schema returns the SQL of the application's tables: several statements for an empty database. Their names are unqualified.
func Schema() string { return file("schema.sql") }

// Definitions returns the application's loose foreign keys, a YAML document in GitLab's format.
func Definitions() string { return file("loose_foreign_keys.yml") }

func file(name string) string {
	// The files are part of the program: a test reads them all, so none is missing here.
	text, _ := sqlfiles.Reference.ReadFile("reference/" + name)
	return string(text)
}
