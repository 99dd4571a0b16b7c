// Package ghostuser deletes users and keeps what they have written. Its entry points are Resolve and Engine.Run.
//
//	lists of columns ─┐
//	                  ├─► Resolve ─► Plan ─┐
//	foreign keys ─────┘                    ▼
//	queue users_ghost_user_migrations ─► Run ─► move ─► delete, nullify ─► under a lock: look again, delete the user
//
// The ghost user is the one that the contributions of deleted users pass to. A user to be deleted stands in the queue. Run takes the due users
// and, in small transactions, moves their contributions to the ghost user and deletes or nullifies the rest. Users take turns, so that a big one
// holds no other up; the rows of many small ones are worked off together. A user with an error is put off, and the others go on.
//
// Its one invariant: a user is deleted only if nothing refers to it, as its last transaction sees. That transaction locks the user, which
// keeps foreign keys to it from appearing, and looks again at every column.
//
// Each batch commits alone and counts itself in the queue's row, so a run may end or be killed anywhere.
package ghostuser
