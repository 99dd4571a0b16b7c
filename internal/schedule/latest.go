package schedule

import (
	"time"

	"github.com/robfig/cron/v3"
)

// Latest returns the last time of the schedule that is later than after and not later than now, and the zero
// time if there is none.
func Latest(s cron.Schedule, after, now time.Time) time.Time {
	tick := upTo(s, after, now)
	if tick.IsZero() {
		return tick
	}
	// Schedules only look forward. Searching backwards in growing steps spares a machine that was switched off
	// for a year the walk over half a million minutes.
	for back := time.Minute; now.Add(-back).After(tick); back *= 2 {
		if found := upTo(s, now.Add(-back), now); !found.IsZero() {
			tick = found
			break
		}
	}
	for next := tick; !next.IsZero(); next = upTo(s, tick, now) {
		tick = next
	}
	return tick
}

// upTo is the schedule's first time after a moment, unless that is later than now or never.
func upTo(s cron.Schedule, after, now time.Time) time.Time {
	next := s.Next(after)
	if next.After(now) {
		return time.Time{}
	}
	return next
}
