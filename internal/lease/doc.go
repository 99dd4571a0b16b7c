// Package lease grants exclusive, time-limited and fenced permission to do one kind of
// work. Its entry points are Manager.Acquire and, with a row in the history of runs,
// Manager.Begin.
//
// A lease is a row in the jobs database. Each acquisition increments its token. Before
// its first batch, a new holder raises the same token in the fences of all databases that
// it will write to. A fence has one row per slot, and all slots are raised in one
// statement. In each batch, a session locks a slot of its own FOR SHARE and compares the
// token (see begin_batch).
//
// Invariant: a holder whose lease has passed to another holder commits nothing, in no
// database, however long its process was stopped and however many sessions it has.
//
// All times come from the server. A holder computes its own deadline on the monotonic
// clock and stops before the lease ends.
package lease
