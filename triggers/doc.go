// Package triggers installs what records deletions and what wakes workers: trigger
// functions in Sexton's schema and statement triggers that run them, on every tracked
// parent
//
//   - sexton_track (AFTER DELETE), which writes one tombstone per deleted row, in the
//     deleting transaction;
//   - sexton_truncate (BEFORE TRUNCATE), which refuses, records or lets pass, because
//     TRUNCATE fires no DELETE trigger;
//
// and on deletion tables
//
//   - sexton_wake (AFTER INSERT), which notifies the worker of the table's job kind
//     unless it is awake;
//   - sexton_wake_update (AFTER UPDATE), which does so where an application's row becomes
//     work by a change.
//
// The functions are SECURITY DEFINER with a pinned search_path and without EXECUTE for
// PUBLIC, so that a role that may delete a parent needs no right on the tombstones. There
// is one tracking function per parent: integers are recorded as bigint, everything else
// as text, and keys of several columns as the text form of an array of texts.
//
// A statement trigger fires for the table that the statement names. A partitioned parent
// therefore carries the triggers itself and so does each of its partitions, all recording
// the name of the root. [EnsurePartitions] adds them to partitions created later, at the
// start of each pass.
//
// Triggers fire ALWAYS, also under session_replication_role = replica, where the
// installing role owns the table; on others Postgres allows a plain trigger only, which
// [Status] reports.
//
// Not recorded, because Postgres fires no trigger for it: DROP TABLE, DROP or DETACH of a
// partition, and a change of a key column.
//
// The functions are code, not data: Install may run at any time, compares with the
// catalogue first, and locks no table whose triggers are as they should be.
package triggers
