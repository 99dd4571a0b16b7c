package listen

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Channel is what wake triggers notify.
const Channel = "sexton_wake"

// Due says what there is to do.
type Due struct {
	// Now is true while there are rows that the kind may take at this moment.
	Now bool
	// In is how long it takes until the next row falls due; 0 where none waits for its time.
	In time.Duration
}

// Lane is one kind of work in one database.
type Lane struct {
	Kind     string
	Database string
	// Conn dials the connection that listens and holds the awake lock. It must be direct: through a
	// transaction pooler neither works.
	Conn *pgx.ConnConfig
	// Pool sends the lane's own notifications, by which it finds out whether it hears.
	Pool *pgxpool.Pool
	// Key1 and Key2 are the awake lock; Tables are those whose rows wake the kind, and whose writers the barrier waits for,
	// quoted and qualified.
	Key1, Key2 int32
	Tables     []string
	// Due is the kind's one predicate. It runs on the listening connection. With fresh it may rely on nothing
	// that it remembers: this is the look before the lane sleeps.
	Due func(ctx context.Context, conn *pgx.Conn, fresh bool) (Due, error)
	// Work gets the work done, or learns that it cannot be done now, and returns when that is so. It
	// returns how long the lane should leave the work alone: 0 to look at once.
	Work func(ctx context.Context) (time.Duration, error)

	Logger *slog.Logger
	Timing Timing

	deaf      atomic.Bool
	connected atomic.Bool
}

// Deaf tells that notifications do not reach the lane, so that it polls.
func (l *Lane) Deaf() bool { return l.deaf.Load() }

// Connected tells that the lane has a connection and sees to its work: notified, or polling where it is deaf.
func (l *Lane) Connected() bool { return l.connected.Load() }

// Timing is when a lane looks again. The zero value of each field means the default in its comment.
type Timing struct {
	// Reconnect is the pause after a lost connection (1 s), half of it random.
	Reconnect time.Duration
	// Answer is how long the server may take for one of the lane's own short statements (10 s). A connection
	// that is stalled and not closed shows itself by that.
	Answer time.Duration
	// Look is how long a lane sleeps at most without looking (10 s), for what a dead worker left behind.
	Look time.Duration
	// SelfCheck is how often a lane notifies itself (30 s), SelfCheckWait how long that may take (5 s).
	SelfCheck     time.Duration
	SelfCheckWait time.Duration
	// Poll is the pause between looks where notifications do not arrive (1 s).
	Poll time.Duration
	// LockTimeout is how long a lane waits for its awake lock (100 ms).
	LockTimeout time.Duration
	// BarrierPoll is the first pause between two looks at the barrier (5 ms); it grows to BarrierPollMax (100 ms).
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

// Run serves the lane until ctx ends. Whatever goes wrong with a connection is logged once per outage, and a
// fresh one is dialled after about a second.
func (l *Lane) Run(ctx context.Context) {
	timing := l.Timing.withDefaults()
	log := l.Logger.With("kind", l.Kind, "database", l.Database)
	var failing time.Time
	back := func() {
		if !failing.IsZero() {
			log.InfoContext(ctx, "wake-up connection is back", "outage_ms", time.Since(failing).Milliseconds())
			failing = time.Time{}
		}
	}
	for ctx.Err() == nil {
		s := &session{lane: l, timing: timing, log: log, well: back}
		err := s.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		level := slog.LevelDebug
		if failing.IsZero() {
			failing, level = time.Now(), slog.LevelWarn
		}
		log.Log(ctx, level, "wake-up connection lost, dialling again", "error", err)
		pause(ctx, timing.Reconnect/2+rand.N(timing.Reconnect/2+1))
	}
}

// pause waits and reports whether ctx is still on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
