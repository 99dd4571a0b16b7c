package listen

import "time"

// Timing contains the intervals and timeouts of a listener and its subscriptions. If a
// field is 0, the default in the field's comment applies.
type Timing struct {
	// Reconnect is the pause after a lost connection or a failed query (1 s).
	Reconnect time.Duration
	// Answer is the timeout of a short statement (10 s). The timeout detects a connection
	// that is stalled but not closed.
	Answer time.Duration
	// MaxSleep is the maximum time that a subscription sleeps before it queries (10 s).
	// The query finds rows that a dead worker left. A random part of up to a tenth is
	// subtracted, so that subscriptions do not all need a connection at the same time.
	MaxSleep time.Duration
	// SelfCheck is the interval at which a listener notifies itself (30 s). SelfCheckWait
	// is the timeout for that notification to arrive (5 s).
	SelfCheck     time.Duration
	SelfCheckWait time.Duration
	// Poll is the pause between queries if notifications do not arrive (1 s).
	Poll time.Duration
	// LockTimeout limits the time that a subscription waits for the awake lock (100 ms).
	LockTimeout time.Duration
	// BarrierPoll is the first pause between two checks of the barrier (5 ms). The pause
	// doubles up to BarrierPollMax (100 ms).
	BarrierPoll    time.Duration
	BarrierPollMax time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, field := range []struct {
		value        *time.Duration
		defaultValue time.Duration
	}{
		{&t.Reconnect, time.Second},
		{&t.Answer, 10 * time.Second},
		{&t.MaxSleep, 10 * time.Second},
		{&t.SelfCheck, 30 * time.Second},
		{&t.SelfCheckWait, 5 * time.Second},
		{&t.Poll, time.Second},
		{&t.LockTimeout, 100 * time.Millisecond},
		{&t.BarrierPoll, 5 * time.Millisecond},
		{&t.BarrierPollMax, 100 * time.Millisecond},
	} {
		if *field.value == 0 {
			*field.value = field.defaultValue
		}
	}
	return t
}
