// Package pulse asks a database for everything that a worker has to know of it from time to time: in one round trip and one transaction,
// however many parts of the worker ask.
//
//	heartbeat ─┐
//	queues ────┤                  every 2 s
//	ear, subscriptions ┼─► Question ─► Pulse ──────────► statements in one pipeline, one implicit transaction ─► answers
//	samples ───┘
//
// A part of the worker adds a Question with its interval. A pulse asks the questions that are due, each with one statement. Its invariant: a
// guest, which asks tables that the application may lock, keeps no other question from its answer. Where a pulse with guests fails, it
// asks the other questions again without them, and where that is refused, each of them alone. Where there is no answer the next pulse asks each
// alone: a table of the worker's own may be locked.
package pulse
