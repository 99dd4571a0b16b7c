// Package lease grants exclusive, time-limited and fenced permission to do one kind of work. Its entry points are Manager.Acquire and, with a run of
// the history, Manager.Begin.
//
// A lease is a row in the jobs database. Each acquisition raises its token by one, and before its first
// batch a new holder raises the same token in the fences of every database that it is going to write to.
// Each batch transaction holds its fence row FOR SHARE and compares the token (see begin_batch), so a
// holder whose lease has passed to another can commit nothing, in no database, however long it slept.
//
// All times come from the server. A holder watches its own deadline on the monotonic clock and stops
// before the lease ends.
package lease
