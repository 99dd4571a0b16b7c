// Package lease grants exclusive, time-limited and fenced permission to do one kind of
// work. Its entry points are Manager.Acquire and, with a row in the history of runs,
// Manager.Begin.
//
// A lease is a row in the jobs database. Each acquisition increments its token. Before
// its first batch, a new holder raises the same token in the fences of every database
// that it will write to. A fence has 32 slots, which exist from the first acquisition on.
// A new holder raises all of them in one statement. In each batch, each session of a pass
// locks a slot of its own FOR SHARE and compares the token (see begin_batch). The
// invariant follows: a holder whose lease has passed to another commits nothing, in no
// database, however long it slept and however many sessions it has.
//
// A holder's own lease can be left over: the answer to an acquisition or a release gets
// lost, or a crash of the server reverts a release. A manager knows the keys that its
// process acquires or works under. For any other key it takes over a lease of its own
// name. It has at most one acquisition per key in progress. No two managers have the same
// name, and the takeover raises the token. So a lost acquisition that reaches the server
// late can only make a batch fail.
//
// A crash of the server can also revert a token, which is then granted twice. Token,
// holder and time of acquisition together identify an acquisition. Renew, Confirm, Raise
// and Release compare them.
//
// All times come from the server. A holder watches its own deadline on the monotonic
// clock and stops before the lease ends.
package lease
