package listen_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

const (
	lost    = "wake-up connection lost"
	failing = "looking for work fails"
)

func TestLaneOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.awaitSleep()
	for range 5 {
		before := b.connections(ears)
		require.Len(t, before, 1)
		b.Exec("SELECT pg_terminate_backend($1, 10000)", before[0])
		b.Exec(insert)
		b.requireDrained()
		pgtest.WaitFor(t, "one fresh connection", func(context.Context) (bool, error) {
			now := b.connections(ears)
			return len(now) == 1 && now[0] != before[0], nil
		})
	}
	require.Equal(t, 5, p.logged(lost))
	require.False(t, p.Deaf())
}

// What came in while nobody listened is found right after the connection is there again.
func TestLaneLooksAfterConnecting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(insert)
	p := newProbe(b)
	p.start()
	b.requireDrained()
	p.await("sleep", func() bool { return p.looks.Load() >= 3 })

	// Silently, so that only the look after connecting finds it.
	b.Exec("BEGIN; SET LOCAL sexton.notify = off; " + insert + "; COMMIT")
	b.Exec("SELECT pg_terminate_backend($1)", b.connections(ears)[0])
	b.requireDrained()
}

// Asleep, the lane notices by its own notifications that its connection is stalled.
func TestStalledConnectionIsNoticedAsleep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	network := newProxy(t)
	p := newProbe(b)
	p.Ear.Conn.DialFunc = network.dial
	p.Timing.SelfCheck, p.Timing.SelfCheckWait, p.Timing.Answer = 100*time.Millisecond, 500*time.Millisecond, 500*time.Millisecond
	p.awaitSleep()
	network.stall()
	b.Exec(insert)
	b.requireDrained()
	require.Positive(t, p.logged(lost))
	require.False(t, p.Deaf(), "a fresh connection hears")
}

// Awake, it notices by the answer that does not come.
func TestStalledConnectionIsNoticedAwake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	network := newProxy(t)
	p := newProbe(b)
	p.Ear.Conn.DialFunc = network.dial
	p.Timing.Answer = 500 * time.Millisecond
	open := p.gate()
	p.start()
	p.wakeUp()
	network.stall()
	open()
	p.await("a second connection", func() bool { return network.dials.Load() >= 2 })
	b.requireDrained()
	p.await("the lane to say so", func() bool { return p.logged(failing) > 0 })
}

// A pool that gives no connection away must not hold the lane up for ever.
func TestLaneDoesNotWaitForItsPool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Ear.Pool = elsewhere(t, b.URL).pool
	p.Timing.Answer = 100 * time.Millisecond
	held := pgtest.Acquire(t, p.Ear.Pool)
	p.start()
	p.await("the lane to give up", func() bool { return p.logged(lost) > 0 })
	held.Release()
	b.Exec(insert)
	b.requireDrained()
}

// In shared mode by whoever that is, the lock cannot be had: writers go on notifying.
func TestForeignSessionHoldsTheLockShared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold("_shared")
	p := newProbe(b)
	p.awaitSleep()
	for range 20 {
		b.Exec(insert)
		b.requireDrained()
	}
	p.stop()
}

// Held exclusively, it silences the writers: what they leave is found by looking.
func TestForeignSessionHoldsTheLockExclusively(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hold("")
	p := newProbe(b)
	p.Timing.Look = 20 * time.Millisecond
	p.awaitSleep()
	for range 5 {
		b.Exec(insert)
		b.requireDrained()
	}
	p.stop()
}

// The server may grant the lock in the moment in which waiting for it has taken too long.
func TestLockGrantedTooLateIsNotKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Timing.LockTimeout = time.Millisecond
	p.awaitSleep()
	foreign := b.connect()
	execute(t, foreign, "SET lock_timeout = '10s'") // A lane that kept the lock would keep it for ever.
	for range 200 {
		// Released about when the lane's patience ends.
		execute(t, foreign, "SELECT pg_advisory_lock_shared($1::int, $2::int)", b.key1, b.key2)
		b.Exec(insert)
		execute(t, foreign, "SELECT pg_advisory_unlock_all()")
		b.requireDrained()
	}
	pgtest.WaitFor(t, "the lane to sleep without the lock", func(ctx context.Context) (bool, error) {
		awake, err := b.awake(ctx)
		return !awake, err
	})
}

func TestLaneSaysWhetherItIsConnected(t *testing.T) {
	t.Parallel()
	p := newProbe(setup(t))
	connected := func(want bool) {
		pgtest.WaitFor(t, "a lane that says whether it is connected", func(context.Context) (bool, error) { return p.Connected() == want, nil })
	}
	require.False(t, p.Connected(), "before it runs")
	p.awaitSleep()
	connected(true)
	p.stop()
	connected(false)
}
