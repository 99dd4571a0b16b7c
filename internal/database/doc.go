// Package database connects to the configured databases and explains connection errors.
// Its entry point is Open.
//
//	url ────────► Pool              batches and queries, possibly through a transaction pooler
//	              Async             the same with asynchronous commit, in a worker with a single database
//	direct url ─► Direct, Sessions  work that needs its own session, past the pooler
//
// Its invariant: no error contains a password. A connection string that cannot be parsed
// is not repeated at all, because the parser cannot distinguish the password from the
// rest.
//
// If a server is down, Open returns an UnreachableError with the fix, and an open
// Database: its pool connects as soon as the server answers.
package database
