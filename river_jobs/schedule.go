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
	// Schedules only look forward. Searching backwards in growing steps spares a machine
	// that was switched off for a year the walk over half a million minutes.
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

// upTo is the schedule's first time after a moment, unless that is later than now or
// never.
func upTo(s cron.Schedule, after, now time.Time) time.Time {
	next := s.Next(after)
	if next.After(now) {
		return time.Time{}
	}
	return next
}

// Rotate returns the ticks of a schedule that are for number index of so many that take
// turns: those in whose minute, counted from the epoch, it is that one's turn. Where the
// schedule's next tick is more than a minute away, all are served at once: with a tick
// every five minutes and five to serve, the same one would have its turn for ever.
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

// Next returns the next tick after t, or the zero time where there is none.
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
