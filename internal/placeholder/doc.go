// Package placeholder deletes placeholder users. An import creates them for the users of
// another server.
//
//	detail row without namespace ─► Engine.Run ─► job ─► Remover.Remove, under a lock on the user ─┬─► kept: rows refer to the user
//	                                                                                               └─► queue of package ghostuser's users
//
// Each placeholder has a row in import_placeholder_user_details. When the imported group
// is deleted, the row's namespace is set to NULL. After that the placeholder's work
// cannot be assigned to a real user, so the placeholder may be deleted. Engine.Run
// inserts a job for each of these rows, in one transaction per row. The job calls
// Remover.Remove, which queries the references under a lock and queues the user for
// deletion.
//
// Invariant: an attempt and its job commit together, wherever a worker is killed. No
// state is kept outside the database.
package placeholder
