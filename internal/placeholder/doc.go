// Package placeholder cleans up the users that imports have made to stand for people of
// another server.
//
//	detail row without namespace ─► Engine.Run ─► job ─► Remover.Remove, under a lock on the user ─┬─► kept: rows refer to the user
//	                                                                                               └─► queue of package ghostuser's users
//
// Each placeholder has a row in import_placeholder_user_details, which loses its
// namespace when the group that was imported into goes. From then on no user will take
// the placeholder's work over, and it may be deleted. Engine.Run inserts a job for each,
// in one transaction per row. Remover.Remove, the job's work, queries the references
// under the lock and puts the user into the queue of the users to be deleted.
//
// Its one invariant: an attempt and its job commit together. A worker that is killed
// anywhere has counted neither an attempt without a job nor a job without an attempt. All
// that is known stands in the database.
package placeholder
