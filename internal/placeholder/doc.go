// Package placeholder deletes placeholder users. An import creates them for the users of
// another server.
//
//	detail row without namespace ─► Engine.Run ─► job ─► Remover.Remove, under a lock on the user ─┬─► kept: rows refer to the user
//	                                                                                               └─► queue of package ghostuser's users
//
// Each placeholder has a detail row in import_placeholder_user_details. When the imported
// group is deleted, the row's namespace is set to NULL. The row and its placeholder are
// then ownerless: the placeholder's work cannot be assigned to a real user, so the
// placeholder may be deleted.
//
// An ownerless row is eligible if it has attempts left and was not tried within the retry
// period. Engine.Run offers each eligible row in its own transaction: it inserts a job
// and counts an attempt. The job calls Remover.Remove, which queries the references under
// a lock and queues the user for deletion.
//
// Invariant: an attempt and its job commit together, even if a worker is killed. No state
// is kept outside the database.
package placeholder
