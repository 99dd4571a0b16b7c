// Package schedule sees to it that each tick of a cron schedule leads to one run, however many copies of the
// program there are and whether or not one is running when the tick comes.
//
// The last tick of each schedule is a row of sexton.schedules. A copy that sees a tick come moves the row on
// and enqueues the run in one transaction. The row's lock decides among copies: the others wait for it, find
// the row changed and have nothing to do. There is no leader, so nobody has to be missed first.
//
// A copy that starts, or looks up after a long time, compares the row with the clock. However many ticks have
// passed in between, one run makes up for all, and the latest of them is recorded. A schedule without a row is
// new: it waits for its next tick. A clock that is set back therefore repeats nothing, and one that is set
// forward causes one run. Schedules that name no time zone are in UTC.
//
// River's own periodic jobs do not serve here. Their state is in the memory of an elected leader: what comes
// due while nobody runs is never known, each restart starts all intervals anew, and after a crash nobody leads
// for up to 20 s. Nor could they insert a job in the transaction that records the tick.
package schedule
