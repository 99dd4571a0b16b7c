package listen

import "time"

// Timing is when ear and subscriptions look again. The zero value of each field means the
// default in its comment.
type Timing struct {
	// Reconnect is the pause after a lost connection or a failed look (1 s).
	Reconnect time.Duration
	// Answer is how long the server may take for a short statement (10 s). A connection
	// that is stalled and not closed shows itself by that.
	Answer time.Duration
	// Look is how long a subscription sleeps at most without a look (10 s), for what a
	// dead worker left behind. A tenth of it is random, so that subscriptions do not need
	// their connections all at once.
	Look time.Duration
	// SelfCheck is how often an ear notifies itself (30 s), SelfCheckWait how long that
	// may take (5 s).
	SelfCheck     time.Duration
	SelfCheckWait time.Duration
	// Poll is the pause between looks where notifications do not arrive (1 s).
	Poll time.Duration
	// LockTimeout is how long a subscription waits for its awake lock (100 ms).
	LockTimeout time.Duration
	// BarrierPoll is the first pause between two looks at the barrier (5 ms); it grows to
	// BarrierPollMax (100 ms).
	BarrierPoll    time.Duration
	BarrierPollMax time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, field := range []struct {
		value *time.Duration
		usual time.Duration
	}{
		{&t.Reconnect, time.Second},
		{&t.Answer, 10 * time.Second},
		{&t.Look, 10 * time.Second},
		{&t.SelfCheck, 30 * time.Second},
		{&t.SelfCheckWait, 5 * time.Second},
		{&t.Poll, time.Second},
		{&t.LockTimeout, 100 * time.Millisecond},
		{&t.BarrierPoll, 5 * time.Millisecond},
		{&t.BarrierPollMax, 100 * time.Millisecond},
	} {
		if *field.value == 0 {
			*field.value = field.usual
		}
	}
	return t
}
