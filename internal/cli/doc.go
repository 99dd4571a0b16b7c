// Package cli provides the code that all commands share. Its entry point is Env: streams,
// common flags, configuration, connections, output and exit codes.
//
//	cmd/worker ─► root ─┬─► run, jobs            operation
//	                    ├─► check                inspection
//	                    ├─► records              data
//	                    ├─► schema, demo         setup
//	                    └─► bench                tools          one package each
//	                            │
//	                            ▼
//	            operator, installation, river_jobs, …           the work itself
//
// A command parses its flags, calls another package and prints the result. With --json,
// it prints one document on standard output. The invariant: a command returns its error,
// and only Env.Exit prints errors and chooses the exit code.
package cli
