// Package clitest runs commands in tests: in process, on databases with a small
// application.
//
//	Plain, Prepared, Installed ─► Site ─► Run(args) ─► Result        one database
//	PlainTwo, InstalledTwo ─────► TwoSites                           two, with the jobs in one of them
//
// Main is the TestMain of a package that uses it. Run runs a command line as cmd/worker
// does, with the environment of the test, and returns exit code and output.
//
// Its one invariant: each site is a database of one test alone, so tests run in parallel.
// Sites with everything installed are copies of templates that are made once.
package clitest
