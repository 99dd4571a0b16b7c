package pace

import (
	"context"
	"fmt"
	"math"
	"time"
)

const (
	// leastShare is the share of its time that a run works at least. Less of it buys the
	// others no shorter latencies, measured; statements that are shorter by the same
	// factor do. At 0.6 the p50 of others was 1.4 and 1.6 times the undisturbed one, at
	// this share 1.0 to 1.5 times, on two cores.
	leastShare = 0.5
	// rarely is the share of looks with another transaction, a monitor's say, up to which
	// a run takes all of its time; often the one from which on leastShare holds.
	rarely, often = 0.05, 0.5
	// memory is the time constant of the averages over looks: a second after the others
	// are gone they count for nothing.
	memory = 250 * time.Millisecond
	// youngest is the age up to which a transaction counts. Older ones are reports, or
	// idle: they would hold a run down for hours.
	youngest = time.Second
	// unknown is the gap between two looks after which the age of a transaction that was
	// not there before is unknown.
	unknown = 10 * time.Second
)

// Duty is the share of its time at which a run works now, as its statistics tell.
type Duty struct {
	// Percent is absent where the run does not share its time, Why is the reason for
	// people.
	Percent int    `json:"duty,omitempty"`
	Why     string `json:"duty_reason,omitempty"`
}

// String is "at 50 % of its time (others: 2.5 transactions in flight)".
func (d Duty) String() string { return fmt.Sprintf("at %d %% of its time (%s)", d.Percent, d.Why) }

// Share returns, between two batches, the share of its time at which a run works, with
// the reason. locked reports that the run waited for a lock a moment ago.
type Share func(ctx context.Context, locked bool) (float64, Duty)

// Configured returns s or, if s is nil, the Share for a configured duty. A duty of 0 is
// all of the time. The function told receives each answer.
func (s Share) Configured(duty float64, told func(Duty)) Share {
	return func(ctx context.Context, locked bool) (float64, Duty) {
		share, why := 1.0, Duty{}
		switch {
		case s != nil:
			share, why = s(ctx, locked)
		case duty > 0:
			share, why = duty, configured(duty)
		}
		told(why)
		return share, why
	}
}

func configured(duty float64) Duty {
	return Duty{Percent: int(math.Round(100 * duty)), Why: "configured"}
}

// Neighbours are the others on a server, as looks between batches find them. All times
// come from the caller. The zero value is ready to use.
type Neighbours struct {
	// since holds the transactions of the last look, and when each was first seen.
	since  map[string]time.Time
	looked time.Time
	// present is the moving average of looks that found others (0 to 1), many that of
	// their number.
	present, many float64
	// blind is why no look is possible.
	blind string
}

// Saw takes in a look: the others' transactions that ran then.
func (n *Neighbours) Saw(now time.Time, transactions []string) {
	first := now
	if now.Sub(n.looked) > unknown {
		first = now.Add(-youngest)
	}
	since, young := make(map[string]time.Time, len(transactions)), 0
	for _, one := range transactions {
		began, known := n.since[one]
		if !known {
			began = first
		}
		if since[one] = began; now.Sub(began) < youngest {
			young++
		}
	}
	weight := 1 - math.Exp(-now.Sub(n.looked).Seconds()/memory.Seconds())
	n.present += weight * (min(float64(young), 1) - n.present)
	n.many += weight * (float64(young) - n.many)
	n.since, n.looked, n.blind = since, now, ""
}

// Blind takes in that no look is possible.
func (n *Neighbours) Blind(now time.Time, why string) {
	*n = Neighbours{looked: now, blind: why}
}

// Share returns all of the time if the server is otherwise idle, and leastShare if other
// sessions use it or hold the locks that the run needs.
func (n *Neighbours) Share(locked bool) (float64, Duty) {
	share := 1 - (1-leastShare)*min(max(n.present-rarely, 0)/(often-rarely), 1)
	if n.blind != "" || locked {
		share = leastShare
	}
	told := Duty{Percent: int(math.Round(100 * share))}
	switch {
	case n.blind != "":
		told.Why = "cannot tell if others are there: " + n.blind
	case locked:
		told.Why = "lock wait"
	case told.Percent == 100:
		told.Why = "alone"
	default:
		told.Why = fmt.Sprintf("others: %.1f transactions in flight", n.many)
	}
	return share, told
}
