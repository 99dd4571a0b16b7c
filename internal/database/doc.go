// Package database connects to the configured databases and says in one sentence why it
// cannot. Its entry point is Open.
//
//	url ────────► Pool              batches and questions, through a transaction pooler if there is one
//	              Async             the same with asynchronous commit, in a worker with a single database
//	direct url ─► Direct, Sessions  what needs a session of its own, past the pooler
//
// Its one invariant: no error holds a password. A connection string that cannot be parsed
// is not repeated at all, because the parser cannot tell the password from the rest.
//
// A server that is down is an UnreachableError with the fix in it. The Database beside it
// is open all the same: its pool connects as soon as the server answers.
package database
