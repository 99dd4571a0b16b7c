// Package pgtest gives tests databases of their own on a real Postgres. Its entry points
// are Main and New.
//
// A package that uses it hands its TestMain to Main:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	New, FromTemplate ─► Database      on the shared server, dropped when the test ends
//	Server, Standby ───► devpg.Server  of one test alone, which may kill it
//
// The server is the one that TEST_DATABASE_URL names (a postgres:// URL of a superuser),
// else a private one, which the first test that asks starts. On Linux all test processes
// of one go command share it, and the templates on it: it ends with that command.
// Elsewhere, and under a debugger, each process has its own. SEXTON_PG_BIN chooses its
// binaries.
//
// Its one invariant: no test sees the data of another test. Without a server tests fail and
// never skip.
package pgtest
