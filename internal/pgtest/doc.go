// Package pgtest creates a database for each test on a real Postgres server. Its entry
// points are Main and New.
//
// A package that uses pgtest calls Main in its TestMain:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	New, FromTemplate ─► Database      on the shared server, dropped when the test ends
//	Server, Standby ───► devpg.Server  of one test only, which may kill the server
//
// TEST_DATABASE_URL names the shared server (a postgres:// URL of a superuser). If it is
// not set, the first test that needs a database starts a private server. On Linux all
// test processes of one go command share that server and its templates, and it stops when
// the go command ends. On other systems, and under a debugger, each process starts its
// own server. SEXTON_PG_BIN selects the server's binaries.
//
// Invariant: no test sees the data of another test. If no server can be started, tests
// fail; they are never skipped.
package pgtest
