// Package config reads Sexton's configuration. Its entry point is Load, which connects
// nowhere.
//
//	defaults ─► YAML file, with ${VARIABLES} ─► SEXTON_… variables ─► flags ─► checks ─► Config          a later one wins
//
// Its one invariant: Load returns a configuration that is whole and checked, or a
// problem.List with everything that is wrong, each with its place and its fix. Neither
// shows a Secret.
//
// Every key can be set by an environment variable named SEXTON_ and its path in capitals,
// with two underscores between levels: SEXTON_DATABASES__MAIN__PACE=turbo. Lists are
// written with commas; the lists of mappings as in YAML, [{table: issues, columns:
// [author_id]}]. ${…} is not expanded in variables.
//
// A file that lists databases is the whole list: a variable or flag can change one of
// them but not add one, so that a misspelt name is found. Without such a list the
// environment may make databases by giving their urls (SEXTON_DATABASES__CI__URL; main
// comes first, the others in the order of their names), and where it names none,
// --database-url or DATABASE_URL alone gives the database main. --database-url replaces
// the url of the first database and drops its listen_url, which led to the server that
// was replaced.
package config
