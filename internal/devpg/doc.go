// Package devpg runs a private Postgres server for the demo and the tests. Its entry
// point is Start.
//
//	find binaries, or fetch them ─► initdb ─► postgres on a Unix socket ─► Server.URL
//
// The server listens only on a Unix socket, in a folder that no other user can enter. If
// the caller is root, the server runs as an unprivileged user, because Postgres refuses
// to run as root.
//
// Invariant: neither processes nor temporary files are left, however the caller's process
// ends. Normally Stop ends the server. Otherwise a shell process, the janitor, ends the
// server and removes the temporary folder when the caller's end of a pipe closes.
//
// The package works on Unix systems: Linux, macOS and BSD.
package devpg
