// Package devpg runs a private Postgres server for the demo and the tests. Its entry
// point is Start.
//
//	find binaries, or fetch them ─► initdb ─► postgres on a Unix socket ─► Server.URL
//
// The server listens on a Unix socket only, in a folder that no other user can enter, and
// runs as an unprivileged user when the caller is root, because Postgres refuses to run
// as root.
//
// Its one invariant: nothing stays behind, however the parent ends. Stop ends the server
// in order; otherwise a small watching shell ends it and removes the temporary folder
// when the parent's end of a pipe closes.
//
// The package needs a Unix: Linux, macOS or a BSD.
package devpg
