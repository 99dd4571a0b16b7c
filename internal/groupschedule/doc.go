// Package groupschedule decides about groups whose deletion was asked for and whose
// period is over. Its entry point is Engine.Run.
//
//	due groups, by id ─► sexton.decide_group_deletion ─┬─► a job of package groupdelete's kind
//	                     one transaction per group     ├─► restored: the user who asked may not remove the group any more
//	                                                   └─► put off, with the reason
//
// Its one invariant: the decision about a group, with all that follows from it, is one
// transaction. A group that cannot be decided about is put off and holds up no other.
//
// The package destroys nothing itself. It also reads what status, failures and the
// commands about groups show, and retries a group.
package groupschedule
