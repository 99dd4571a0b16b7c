// Package clitest runs commands in tests. The commands run in the test process, on
// databases with a small application.
//
//	Plain, Prepared, Installed ─► Site ─► Run(args) ─► Result                       one database
//	PlainTwoDatabases, InstalledTwoDatabases ─► TwoDatabases                        two databases
//
// Main is the TestMain of each package with such tests. Run runs a command line in the
// same way as cmd/worker, with the environment of the site, and returns the exit code and
// the output.
//
// The invariant: each site has its own database, so that tests can run in parallel. Sites
// with an installation are copies of a template that is created once.
package clitest
