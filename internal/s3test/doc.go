// Package s3test gives tests an S3 server of their own: versitygw over a folder, behind a
// proxy that can be made a bad network.
//
//	the test's client ─► proxy (Reset, Cut, Stall, Slow) ─► versitygw ─► a folder of the test
//
// A package that uses it calls Prepare in its TestMain, before it runs the tests:
//
//	func TestMain(m *testing.M) { s3test.Prepare(); pgtest.Main(m) }
//
// The server's version is pinned by tools/versitygw, a module of its own. The go command
// builds it at the first use, which takes a minute or two, and keeps it in its cache.
//
// Its one invariant: there are no ports to choose. The server listens on a socket in a
// folder of the test, the proxy on any free port of the loopback address.
package s3test
