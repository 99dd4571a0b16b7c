// Package listen wakes up one kind of work in one database, within milliseconds of the
// commit that made it due, and loses no wake-up.
//
// An Ear listens for all kinds of a database on one connection, which pgxlisten dials
// again when it is lost. A Subscription is one kind. It sleeps without a connection until
// the ear leaves it a token, its time is over, or the next row falls due. Awake it has
// one connection of a pool, for the awake lock, its looks at what is due, and the
// barrier.
//
// A commit that sent NOTIFY takes a lock that serialises all such commits of the
// database, so the trigger on the deletion table notifies only while the kind is asleep.
// Awake means: a session holds the subscription's awake lock, an exclusive session
// advisory lock on a direct connection. The trigger, after its write, tries the lock in
// shared mode; where it gets it, no subscription is awake, and it notifies.
//
//	   ┌───────────────────────────── token, timer, poll ───────────────────────────────┐
//	   ▼                                                                                 │
//	AWAKE: due? ── yes ─► lock taken ─► work ─► due? ── no ─► lock dropped ─► BARRIER ── due? ── no ─► ASLEEP
//	   ▲                                  ▲       yes                            │        yes
//	   │                                  └────────┘                             │         │
//	   └─────────────────────────────────────────────────────────────────────────┘◄────────┘
//
// If another session has the lock, as another copy of the worker does, the subscription
// asks for the work and sleeps without waiting for it: the holder looks again after it
// has dropped the lock, and sees all rows that were seen before. If the holder dies, the
// look every 10 s finds its rows and takes the lock.
//
// The barrier waits for every transaction that held a write lock on the deletion table
// just after the awake lock was dropped, prepared transactions included. Why no wake-up
// is lost, for a writer W: it takes its table lock, writes its rows, tests the awake
// lock, and notifies where it is free; at its commit it becomes visible first and
// releases its locks then.
//
//   - The lock was free. If the ear was listening, its token is placed once W is visible.
//     A token is consumed before a look and never after it, so that look sees W. If the
//     ear was not listening, its LISTEN commits later. Either W was visible by then, and
//     the look that the backlog handler asks of every subscription sees it; or it was
//     not, and Postgres delivers what commits after LISTEN. Visibility is the server's,
//     so it does not matter which connection looks.
//   - The subscription held the lock. W tested it before the unlock returned, so it held
//     its table lock at that time. The barrier is raised after that reply, on the same
//     connection: it waits for W, or W has ended, and the look behind it sees W. The ear
//     plays no part in this case, and may die at any moment of it. Tokens that came
//     before that look are dropped: it sees what they stand for.
//   - The connection with the lock dies. The server drops the lock, and writers notify
//     again. The subscription fails, looks within about a second, and raises the barrier
//     although it has no lock to drop, for writers that found the lock held.
//   - The ear dies. Every subscription looks and then polls, until the backlog handler of
//     the next connection has checked that it hears. A subscription takes the lock only
//     while the ear hears.
//   - Another process held the lock and was killed, or cannot look. No barrier of ours
//     waits for W; the look every 10 s finds its rows.
//
// That look is one query on the worker's pool. It needs no barrier: a subscription that
// sleeps has waited at one. If something is due, or the query fails, the subscription
// wakes and looks on a connection of its own.
//
// This holds under every isolation level, for savepoints and for prepared transactions,
// as the awake lock is read outside of any snapshot. After a crash or failover of the
// server there is no lock, and writers notify. A connection that has held the lock goes
// back to its pool only once the server has confirmed the unlock; otherwise it is closed.
//
// model_test.go holds the same protocol as a model whose every state a test visits.
//
// Nothing depends on it: a notification is a hint, and cron is the floor. The ear calls
// itself when it has dialled and every 30 s. A call that does not come back means that
// the connection is stalled, and it is cut; on a fresh one, that LISTEN does not deliver
// there, and subscriptions poll and say so, until a call comes back.
package listen
