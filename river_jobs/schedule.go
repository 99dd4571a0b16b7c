package riverjobs

import (
	"time"

	"github.com/robfig/cron/v3"
)

// LatestTick returns the last time of the schedule that is later than after and not later
// than now, and the zero time if there is none.
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

// upTo returns the schedule's first time after a moment, or the zero time if that is later
// than now or never.
func upTo(s cron.Schedule, after, now time.Time) time.Time {
	next := s.Next(after)
	if next.After(now) {
		return time.Time{}
	}
	return next
}

// Rotate returns the ticks of a schedule that serve the database with that index, if of
// databases take turns by minutes since the epoch. A tick that is followed by a gap of more
// than a minute serves all databases. With a tick every five minutes and five databases,
// the same one would otherwise be served each time.
func Rotate(s cron.Schedule, index, of int) cron.Schedule {
	if of < 2 {
		return s
	}
	return rotating{schedule: s, index: int64(index), of: int64(of)}
}

type rotating struct {
	schedule  cron.Schedule
	index, of int64
}

// Next returns the next tick after t, or the zero time if there is none.
func (r rotating) Next(t time.Time) time.Time {
	for tick := r.schedule.Next(t); !tick.IsZero(); {
		following := r.schedule.Next(tick)
		if (tick.Unix()/60)%r.of == r.index || following.Sub(tick) > time.Minute {
			return tick
		}
		tick = following
	}
	return time.Time{}
}
