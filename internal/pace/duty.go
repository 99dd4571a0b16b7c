package pace

import (
	"context"
	"fmt"
	"math"
	"time"
)

const (
	// leastShare is the smallest share of its time that a run works. Measurements show
	// that a smaller share does not shorten the latencies of other sessions, while
	// shorter statements do. On two cores, the p50 of other sessions during a run with a
	// share of 0.6 was 1.4 and 1.6 times their p50 without a run. With a share of 0.5 it
	// was 1.0 to 1.5 times.
	leastShare = 0.5
	// rarely and often are limits for the average share of queries that find a
	// transaction of another session. Up to rarely, as with a monitoring tool, a run
	// works all of its time. From often on, a run works leastShare of its time.
	rarely, often = 0.05, 0.5
	// averageOver is the time constant of the averages. One second after other sessions
	// have ended, they no longer affect the share.
	averageOver = 250 * time.Millisecond
	// mostAge is the greatest age at which a transaction counts. Older transactions
	// belong to reports or idle sessions, which would slow a run down for hours.
	mostAge = time.Second
	// longGap is the time between two queries after which the age of a new transaction is
	// unknown. Such a transaction does not count.
	longGap = 10 * time.Second
)

// Duty is the share of its time that a run works now, as its statistics report it.
type Duty struct {
	// Percent is 0 if the share is neither computed nor configured, so that the run works
	// all of its time. Why is the reason for the share, for users.
	Percent int    `json:"duty,omitempty"`
	Why     string `json:"duty_reason,omitempty"`
}

// String returns the duty as a phrase, such as "at 50% of its time (lock wait)".
func (d Duty) String() string { return fmt.Sprintf("at %d%% of its time (%s)", d.Percent, d.Why) }

// Share is a function that returns the share of its time that a run works. The Duty has
// the same share with its reason, for statistics. The run calls the function between two
// batches. locked is true if the run met a lock within the last second.
type Share func(ctx context.Context, locked bool) (float64, Duty)

// Configured returns a function that calls s or, if s is nil, returns the fixed duty. If
// the fixed duty is 0, the run works all of its time. report is called with each result.
func (s Share) Configured(duty float64, report func(Duty)) Share {
	return func(ctx context.Context, locked bool) (float64, Duty) {
		share, reported := 1.0, Duty{}
		switch {
		case s != nil:
			share, reported = s(ctx, locked)
		case duty > 0:
			share, reported = duty, Duty{Percent: int(math.Round(100 * duty)), Why: "configured"}
		}
		report(reported)
		return share, reported
	}
}

// OtherSessions computes the share of a run from queries for the transactions of other
// sessions on a server. The caller passes all times. The zero value is ready to use.
type OtherSessions struct {
	// since maps each transaction of the last query to the time at which it was first
	// found. latest is the time of the last query.
	since  map[string]time.Time
	latest time.Time
	// found is the moving average of the share of queries that found a transaction
	// younger than mostAge (0 to 1). count is the moving average of the number of
	// transactions younger than mostAge.
	found, count float64
	// unknown is the error of the last query, or "".
	unknown string
}

// Record records the transactions that a query has found.
func (o *OtherSessions) Record(now time.Time, transactions []string) {
	first := now
	if now.Sub(o.latest) > longGap {
		first = now.Add(-mostAge)
	}
	since, young := make(map[string]time.Time, len(transactions)), 0
	for _, one := range transactions {
		began, known := o.since[one]
		if !known {
			began = first
		}
		if since[one] = began; now.Sub(began) < mostAge {
			young++
		}
	}
	weight := 1 - math.Exp(-now.Sub(o.latest).Seconds()/averageOver.Seconds())
	o.found += weight * (min(float64(young), 1) - o.found)
	o.count += weight * (float64(young) - o.count)
	o.since, o.latest, o.unknown = since, now, ""
}

// SetUnknown records that a query has failed.
func (o *OtherSessions) SetUnknown(now time.Time, why string) {
	*o = OtherSessions{latest: now, unknown: why}
}

// Share returns 1 if the server has no other work, and leastShare if other sessions use
// it or hold locks that the run needs.
func (o *OtherSessions) Share(locked bool) (float64, Duty) {
	share := 1 - (1-leastShare)*min(max(o.found-rarely, 0)/(often-rarely), 1)
	if o.unknown != "" || locked {
		share = leastShare
	}
	duty := Duty{Percent: int(math.Round(100 * share))}
	switch {
	case o.unknown != "":
		duty.Why = "other sessions are unknown: " + o.unknown
	case locked:
		duty.Why = "lock wait"
	case duty.Percent == 100:
		duty.Why = "no other sessions"
	default:
		duty.Why = fmt.Sprintf("other sessions: %.1f transactions", o.count)
	}
	return share, duty
}
