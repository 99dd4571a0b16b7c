package schedule

import "time"

// Clock tells the time. Its Now may jump, as a machine's clock does when it is set; After counts time that
// passes, whatever the clock says.
type Clock interface {
	// Now is the time in any location.
	Now() time.Time
	// After returns a channel that receives once d has passed; d may be zero or less.
	After(d time.Duration) <-chan time.Time
}

type systemClock struct{}

var _ Clock = systemClock{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
