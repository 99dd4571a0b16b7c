// Package ghostuser deletes users and keeps their contributions. Its entry points are
// Resolve and Engine.Run.
//
//	lists of columns ─┐
//	                  ├─► Resolve ─► Plan ─┐
//	foreign keys ─────┘                    ▼
//	queue users_ghost_user_migrations ─► Run ─► package drain: move, delete, nullify ─► delete the user
//
// Contributions of deleted users pass to the ghost user. Run converts the plan to edges
// and is the source of a drain.Pass: each queued user is a chunk of one key, and its
// completion deletes the user. A user with an error is deferred, and the run continues
// with the other users.
//
// Invariant: a user is deleted only if no rows refer to it in a snapshot that was taken
// after the user was locked. Writers lock the user before they add rows that refer to it,
// so the snapshot has all of these rows and no further ones can be added.
//
// Each batch commits alone and counts its rows in the user's row of the queue, so a run
// can be killed at any point.
package ghostuser
