// Package listen wakes up one kind of work in one database within milliseconds of the
// commit that made it due. Its invariant is that no wake-up is lost. Its entry points are
// Listener.Add and Listener.Run.
//
// A Listener listens for all kinds of a database on one connection, which pgxlisten dials
// again after a loss. A Subscription is one kind. Asleep it has no connection, and waits
// for a token from the listener, a timer, or the time of the next row. Awake it has one
// connection of a pool, for the awake lock, its queries for due work, and the barrier.
//
// A commit that sent NOTIFY takes a lock that serializes all such commits of the server.
// So the trigger on the deletion table notifies only while the kind is asleep. Awake
// means that a session holds the awake lock, an exclusive session advisory lock on a
// direct connection. After its write, the trigger tries that lock in shared mode. If it
// gets the lock, no subscription is awake, and it notifies.
//
//	   ┌───────────────────────────── token, timer, poll ───────────────────────────────┐
//	   ▼                                                                                 │
//	AWAKE: due? ── yes ─► lock taken ─► work ─► due? ── no ─► released ─► BARRIER ── due? ── no ─► ASLEEP
//	   ▲                                  ▲       yes                        │        yes
//	   │                                  └────────┘                         │         │
//	   └─────────────────────────────────────────────────────────────────────┘◄────────┘
//
// If another session has the lock, usually one of another replica, the subscription
// requests the work and sleeps without waiting for it. The holder queries again after it
// has released the lock, and sees all rows that were visible before. If the holder dies,
// the query every 10 s finds its rows, and the subscription takes the lock.
//
// The barrier waits for every transaction that held a write lock on the deletion table
// just after the awake lock was released, including prepared transactions. A writer W
// takes its table lock, writes its rows, tests the awake lock, and notifies if the lock
// is free. Its commit first makes the rows visible and then releases its locks. Why no
// wake-up is lost:
//
//   - The lock was free. If the listener was listening, its token arrives after W is
//     visible. A token is consumed before a query and never after it, so that query sees
//     W. If the listener was not listening, its LISTEN commits later. Either W was visible
//     by then, and the query that HandleBacklog requests of every subscription sees it.
//     Or W was not visible, and Postgres delivers notifications of commits after LISTEN.
//     Visibility belongs to the server, so the connection of the query does not matter.
//   - The subscription held the lock. W tested it before the unlock returned, so it held
//     its table lock at that time. The barrier is raised after that reply, on the same
//     connection. Either it waits for W, or W has ended, and the query after the barrier
//     sees W. The listener has no part in this case, and may die at any moment of it.
//     Tokens from before that query are dropped, because the query sees their rows.
//   - The connection with the lock dies. The server releases the lock, and writers notify
//     again. The subscription fails, queries within about a second, and raises the
//     barrier although it has no lock, for writers that found the lock taken.
//   - The listener dies. Every subscription queries and then polls, until HandleBacklog of
//     the next connection has checked that notifications arrive. A subscription takes the
//     lock only while notifications arrive.
//   - Another process held the lock and was killed, or cannot query. No barrier of this
//     process waits for W. The query every 10 s finds its rows.
//
// That query runs on the worker's pool. It needs no barrier, because a sleeping
// subscription has waited at one. If something is due, or the query fails, the
// subscription wakes and queries on a connection of its own.
//
// This holds under every isolation level, for savepoints and for prepared transactions,
// because the awake lock is read outside of any snapshot. After a crash or failover of
// the server there is no lock, and writers notify. A connection that has held the lock
// returns to its pool only after the server has confirmed the unlock. Otherwise it is
// closed.
//
// model_test.go has the same protocol as a model, and visits every state of it.
//
// No result depends on this package: a notification is a hint, and cron is the fallback.
// The listener notifies itself after it has connected and every 30 s. If a later
// notification does not arrive, the connection is stalled and is closed. If the first one
// does not arrive, LISTEN does not deliver there, and subscriptions poll and report it
// until one arrives.
package listen
