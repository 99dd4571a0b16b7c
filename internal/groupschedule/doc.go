// Package groupschedule enqueues or restores groups that are scheduled for deletion and
// due. Its entry point is Engine.Run.
//
//	due groups, by id ─► sexton.decide_group_deletion ─┬─► a job that destroys the group
//	                     one transaction per group     ├─► restored: the requester may no longer remove the group
//	                                                   └─► deferred, with the reason
//
// Invariant: the decision about a group and all its effects are one transaction. A group
// whose decision fails is deferred and delays no other group.
//
// The package does not delete groups. It also reads groups for status, failures and the
// group commands, and retries a group.
package groupschedule
