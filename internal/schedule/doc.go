// Package schedule has what River's periodic jobs lack. Its entry points are Latest, which finds the last tick of a schedule, however long ago
// that is, and Rotate, which lets databases take turns.
//
// Its one invariant: the answer depends on the schedule and the times given alone, so all workers agree. Schedules that name no time zone are
// in the zone of the times given, UTC in this program.
package schedule
