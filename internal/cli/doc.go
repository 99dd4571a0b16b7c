// Package cli holds what all commands share. Env is its entry point: streams, the flags
// of every command, configuration, connections, JSON or tables, and exit codes.
//
//	cmd/worker ─► root ─┬─► run, jobs            operate
//	                    ├─► check                look after it
//	                    ├─► records              data
//	                    ├─► schema, demo         start
//	                    └─► bench                tools          each a package below, each with a file per command
//	                            │
//	                            ▼
//	            operator, installation, river_jobs, …           the work itself
//
// A command reads its flags, calls another package and prints the answer, with --json as
// one document on standard output. The one invariant: it returns its error, and Env.Exit
// alone prints that and picks the exit code.
package cli
