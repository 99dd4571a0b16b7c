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
