// Package listen wakes up one kind of work in one database, within milliseconds of the commit that made it
// due, and loses no wake-up.
//
// A commit that sent NOTIFY takes a lock that serialises all such commits of the database, so the trigger on
// the deletion table notifies only while nobody is awake. Awake means: somebody holds the lane's awake lock,
// an exclusive session advisory lock on a direct connection. The trigger, after its write, tries the lock in
// shared mode; where it gets it, nobody is awake, and it notifies.
//
//	         ┌──────────────────────── notification, timer, poll ───────────────────────┐
//	         ▼                                                                           │
//	LISTEN ─► AWAKE: lock taken ── due? ── no ─► lock dropped ─► BARRIER ── due? ── no ─► ASLEEP
//	                     ▲          yes                             │        yes
//	                     └─ work ◄───┘◄──────────────────────────────────────┘
//
// The barrier waits for every transaction that held a write lock on the deletion table just after the awake
// lock was dropped, prepared transactions included. Why no wake-up is lost: a writer has its table lock
// before its trigger looks at the awake lock. If it found nobody awake, its notification goes to a
// connection that has been listening since before. If it found somebody awake, it looked before the lock was
// dropped, so its table lock was held at that moment, the barrier outlives it, and the look at due behind
// the barrier sees its rows. This holds under every isolation level, for savepoints and for prepared
// transactions, as the awake lock is read outside of any snapshot. After a crash or failover of the server
// there is no lock, and writers notify.
//
// model_test.go holds the same protocol as a model whose every state a test visits.
//
// Nothing depends on it: a notification is a hint, and cron is the floor. A connection is listened to only
// as long as a notification of its own gets through; without that the lane polls and says so.
package listen
