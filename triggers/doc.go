// Package triggers installs the triggers that record deletions, save deleted rows and
// wake workers, and their functions in Sexton's schema. Its entry points are Install,
// Uninstall, Status and EnsurePartitions.
//
//   - sexton_track inserts one tombstone per deleted row of a tracked parent, and
//     sexton_truncate refuses or ignores TRUNCATE, which fires no DELETE trigger.
//   - sexton_wake and sexton_wake_update on deletion tables notify workers.
//   - sexton_keep and sexton_keep_update save the rows that native foreign keys delete or
//     change below rows that are saved for undo.
//
// A statement trigger fires for the table that the statement names, so partitions have
// the triggers of their root. The functions are SECURITY DEFINER, so a role that may
// delete a parent needs no privilege on the tombstones. DROP TABLE, DROP or DETACH of a
// partition and changes of a key column are not recorded.
//
// The invariant is that Install may run at any time. It compares with the catalog first,
// and locks no table whose triggers are up to date.
package triggers
