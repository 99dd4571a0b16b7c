// Package database connects to the configured databases and explains connection errors.
// Its entry point is Open.
//
//	url ────────► Pool              batches and queries, possibly through a transaction pooler
//	              Async             the same with asynchronous commit, in a worker with a single database
//	direct url ─► Direct, Sessions  work that needs its own session, past the pooler
//
// Its invariant is that no error contains a password. An error about a connection string
// that cannot be parsed contains no part of the string, because the parser cannot
// distinguish the password from other parts.
//
// If a server is down, Open returns an UnreachableError with the fix, and an open
// Database whose pool connects when the server answers.
package database
