// Package listen wakes up one kind of work in one database within milliseconds of the
// commit that made it due. Its entry points are Listener.Add and Listener.Run.
//
// A commit that sent NOTIFY takes a lock that serializes all such commits of the server.
// So the trigger on the deletion table notifies only while the kind is asleep, that is,
// while no session holds the kind's awake lock.
//
//	   ┌───────────────────────────── token, timer, poll ───────────────────────────────┐
//	   ▼                                                                                 │
//	AWAKE: due? ── yes ─► lock taken ─► work ─► due? ── no ─► released ─► BARRIER ── due? ── no ─► ASLEEP
//	   ▲                                  ▲       yes                        │        yes
//	   │                                  └────────┘                         │         │
//	   └─────────────────────────────────────────────────────────────────────┘◄────────┘
//
// The invariant: no wake-up is lost. session.fallAsleep and Listener.HandleBacklog
// explain why, and model_test.go checks every state of the protocol. No result depends on
// this package: a notification is a hint, and cron is the fallback.
package listen
