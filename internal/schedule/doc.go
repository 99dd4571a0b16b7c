// Package schedule has what River's periodic jobs lack: which tick of a schedule was the last one, however long ago that is, and whose
// turn it is among databases. Schedules that name no time zone are in the zone of the times given, UTC in this program.
package schedule
