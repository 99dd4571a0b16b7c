// Package root puts the commands together and runs one command line. Its entry point is
// Main.
//
//	newCommand ─► start │ operate │ look │ data │ tools          the groups of the help, filled by the packages beside this one
//
// Its one invariant: no other package knows all the parts, and this one holds no command
// except version, help and completion.
//
// The first SIGINT or SIGTERM asks the command to stop after the work in hand; a second
// one ends the process.
package root
