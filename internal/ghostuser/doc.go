// Package ghostuser deletes users and keeps their contributions. Its entry points are
// Resolve and Engine.Run.
//
//	lists of columns ─┐
//	                  ├─► Resolve ─► Plan ─┐
//	foreign keys ─────┘                    ▼
//	queue users_ghost_user_migrations ─► Run ─► package drain: move, delete, nullify ─► delete the user
//
// Contributions of deleted users are moved to the ghost user. Run converts the plan to
// edges and is the source of a drain.Pass: each queued user is a chunk of one key, and its
// completion deletes the user. A user with an error is deferred, and the run continues
// with the other users.
//
// Invariant: a user is deleted only if no rows refer to it in a snapshot that was taken
// after the user was locked. Sessions that insert rows with a foreign key to the user
// lock the user first. The snapshot therefore contains all of these rows, and no session
// can insert more of them.
//
// Each batch is one transaction and adds its rows to the counts in the user's row of the
// queue, so a run can be killed at any point.
package ghostuser
