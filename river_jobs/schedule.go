package riverjobs

import (
	"time"

	"github.com/robfig/cron/v3"
)

// LatestTick returns the last tick of the schedule that is later than after and not later
// than now. It returns the zero time if there is none.
func LatestTick(s cron.Schedule, after, now time.Time) time.Time {
	tick := upTo(s, after, now)
	if tick.IsZero() {
		return tick
	}
	// Schedules can only search forward. Searching from starts further and further back
	// avoids stepping through half a million minutes after a year without a worker.
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

// upTo returns the schedule's first tick after the time after. It returns the zero time
// if there is none or if the tick is later than now.
func upTo(s cron.Schedule, after, now time.Time) time.Time {
	next := s.Next(after)
	if next.After(now) {
		return time.Time{}
	}
	return next
}

// Rotate returns a schedule with the ticks that serve the database with the given index,
// out of the given number of databases. Databases take turns by minutes since the epoch.
// A tick that is followed by a gap of more than a minute serves all databases. Otherwise,
// a tick every five minutes would always serve the same one of five databases.
func Rotate(s cron.Schedule, index, count int) cron.Schedule {
	if count < 2 {
		return s
	}
	return rotating{schedule: s, index: int64(index), count: int64(count)}
}

type rotating struct {
	schedule     cron.Schedule
	index, count int64
}

// Next returns the next tick after t, or the zero time if there is none.
func (r rotating) Next(t time.Time) time.Time {
	for tick := r.schedule.Next(t); !tick.IsZero(); {
		following := r.schedule.Next(tick)
		if (tick.Unix()/60)%r.count == r.index || following.Sub(tick) > time.Minute {
			return tick
		}
		tick = following
	}
	return time.Time{}
}
