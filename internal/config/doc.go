// Package config reads the configuration. The entry point is Load, which connects to no
// database.
//
//	defaults ─► YAML file, with ${VARIABLES} ─► SEXTON_… variables ─► flags ─► checks ─► Config          a later one wins
//
// Invariant: Load returns a complete and checked configuration, or a problem.List with
// all errors, each with its position and fix. Neither prints a Secret.
//
// Each key has an environment variable: SEXTON_ and its path in capitals, with two
// underscores between levels, as in SEXTON_DATABASES__MAIN__PACE=turbo. Lists are
// separated by commas. Lists of mappings are YAML: [{table: issues, columns:
// [author_id]}]. ${…} in variables is not expanded.
//
// If the file lists databases, a variable or flag can change but not add one, so that a
// misspelled name is reported. Otherwise the environment defines databases by their URLs
// (SEXTON_DATABASES__CI__URL), main first and then by name. If there are none,
// --database-url or DATABASE_URL defines the database main. --database-url replaces the
// url of the first database and removes its listen_url.
package config
