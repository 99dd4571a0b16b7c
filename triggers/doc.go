// Package triggers installs the triggers that record deletions and wake workers, and
// their functions in Sexton's schema. Its entry points are Install, Uninstall, Status and
// EnsurePartitions.
//
// On every tracked parent:
//
//   - sexton_track (AFTER DELETE) inserts one tombstone per deleted row, in the deleting
//     transaction.
//   - sexton_truncate (BEFORE TRUNCATE) refuses or ignores TRUNCATE, because TRUNCATE fires
//     no DELETE trigger.
//
// On deletion tables:
//
//   - sexton_wake (AFTER INSERT) notifies the worker of the table's job kind unless it is
//     awake.
//   - sexton_wake_update (AFTER UPDATE) does so if an application's row becomes work by a
//     change.
//
// On tables below rows that are kept for undo:
//
//   - sexton_keep and sexton_keep_update keep what native foreign keys delete or change.
//
// The functions are SECURITY DEFINER with a pinned search_path and without EXECUTE for
// PUBLIC, so that a role that may delete a parent needs no privilege on the tombstones.
// There is one tracking function per parent. It records integers as bigint, other keys as
// text, and keys of several columns as the text form of an array of texts.
//
// A statement trigger fires for the table that the statement names. So a partitioned
// parent and each of its partitions have the triggers, and all record the name of the
// root. EnsurePartitions adds them to new partitions at the start of each pass.
//
// Triggers fire ALWAYS, also under session_replication_role = replica, if the installing
// role owns the table. Otherwise Postgres allows only a plain trigger, which Status
// reports.
//
// Postgres fires no trigger for DROP TABLE and for DROP or DETACH of a partition, so
// these are not recorded. A change of a key column is not recorded either.
//
// The invariant: Install may run at any time. It compares with the catalog first, and
// locks no table whose triggers are up to date.
package triggers
