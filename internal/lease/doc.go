// Package lease grants exclusive, time-limited and fenced permission to do one kind of work. Its entry points are Manager.Acquire and, with a run of
// the history, Manager.Begin.
//
// A lease is a row in the jobs database. Each acquisition raises its token by one, and before its first
// batch a new holder raises the same token in the fences of every database that it is going to write to.
// A fence has 32 slots, which exist from the first acquisition on. A new holder raises all of them in one
// statement. Each session of a pass locks a slot of its own in each batch, FOR SHARE, and compares the token
// (see begin_batch). So a holder whose lease has passed to another can commit nothing, in no database,
// however long it slept and however many sessions it has.
//
// An answer of the server may get lost after it has committed, and a crash of the server may bring back a lease that was given back: the process
// would then be refused by itself until the end of a lease that nothing works under. So each statement that takes a lease writes a number of its own
// into the row, its attempt. A manager counts its attempts from a random number on and sends along which of them are live, that is under way or
// worked under: any other one of its own that holds the lease is over. What makes that safe:
//   - no batch has run under an attempt that failed, as no session has got its token, and the attempt that takes over raises the token as every
//     holder does, so that a batch of a lease that was given back commits before or not at all;
//   - an attempt that is still under way, or whose lease is worked under, is live or has a higher number, and another manager has other numbers,
//     whatever its name: both are refused as ever;
//   - a lost statement may come to the server later than the next attempt does: the row's lock puts them in an order, and an attempt that is over
//     stays so.
//
// The number also tells a holder's own lease where it renews, advances or gives it back, whatever became of the token.
//
// All times come from the server. A holder watches its own deadline on the monotonic clock and stops
// before the lease ends.
package lease
