// Package s3test starts an S3 server for a test: versitygw with a folder as its storage,
// and a proxy in front of it that can simulate a faulty network.
//
// The TestMain of a package that uses it calls Prepare before it runs the tests. New
// starts a server.
//
// The module tools/versitygw pins the version of the server. The go command builds the
// server on first use, which takes a minute or two, and caches it.
//
// Invariant: no port numbers are configured. The server listens on a Unix socket in a
// folder of the test, and the proxy on a free port of the loopback address.
package s3test
