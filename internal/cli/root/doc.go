// Package root builds the command tree and runs one command line. Its entry point is
// Main.
//
//	newCommand ─► setup │ operation │ inspection │ data │ tools     the groups of the help
//
// The invariant: only this package imports the packages of all commands. It defines no
// command itself, except version, help and completion.
//
// The first SIGINT or SIGTERM stops the command after its current batch. A second signal
// ends the process.
package root
