// Package ghostuser deletes users and keeps what they have written. Its entry points are
// Resolve and Engine.Run.
//
//	lists of columns ─┐
//	                  ├─► Resolve ─► Plan ─┐
//	foreign keys ─────┘                    ▼
//	queue users_ghost_user_migrations ─► Run ─► package drain: move, delete, nullify ─► delete the user
//
// The ghost user takes over the contributions of deleted users. Run binds the plan to
// edges and is the source of a drain.Pass: each queued user is a chunk of one key, whose
// completion deletes the user. A user with an error is deferred, and the run continues
// with the others.
//
// Invariant: a user is deleted only if nothing refers to it in a snapshot that was taken
// after the user was locked. Writers lock the user before they add rows that refer to it,
// so no row is missing in that snapshot and none can be added.
//
// Each batch commits alone and counts itself in the queue's row, so a run may end or be
// killed anywhere.
package ghostuser
