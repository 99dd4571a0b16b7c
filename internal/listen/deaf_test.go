package listen_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

const (
	silent = "SET sexton.notify = off; " + insert + "; RESET sexton.notify"
	deaf   = "notifications do not arrive, polling instead"
)

// caller is a pool of one connection whose database can be changed. Notifications reach only their own.
type caller struct {
	pool     *pgxpool.Pool
	database atomic.Pointer[string]
}

func elsewhere(t *testing.T, url string) *caller {
	t.Helper()
	config := pgtest.Must(pgxpool.ParseConfig(url))(t)
	config.MaxConns = 1
	c := &caller{}
	config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
		if name := c.database.Load(); name != nil {
			conn.Database = *name
		}
		return nil
	}
	c.pool = pgtest.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(c.pool.Close)
	return c
}

func (c *caller) moveTo(database string) {
	c.database.Store(&database)
	c.pool.Reset()
}

func TestDeafLanePolls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	call := elsewhere(t, pgtest.New(t).URL)
	p := newProbe(b)
	p.Ear.Pool = call.pool
	p.Timing.SelfCheck, p.Timing.SelfCheckWait = 50*time.Millisecond, 50*time.Millisecond
	open := p.gate()
	p.start()
	p.await("the lane to be deaf", p.Deaf)
	b.Exec(silent)
	p.await("the work to begin", func() bool { return p.works.Load() == 1 })
	require.False(t, pgtest.Must(b.awake(t.Context()))(t), "behind a transaction pooler the lock would not be its own")
	open()
	b.requireDrained()

	calls := call.pool.Stat().AcquireCount()
	p.await("more checks", func() bool { return call.pool.Stat().AcquireCount() >= calls+5 })
	require.Equal(t, 1, p.logged(deaf), "said once")
	require.Zero(t, p.logged(lost))
	require.Zero(t, p.logged("notifications arrive again"))

	call.moveTo(b.Name)
	p.await("the lane to hear", func() bool { return !p.Deaf() })
	p.await("a log line", func() bool { return p.logged("notifications arrive again") == 1 })
	b.Exec(insert)
	b.requireDrained()
}

// Once it has heard nothing, a lane is deaf until it hears, on whatever connection.
func TestDeafLaneStaysDeafOnFreshConnections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	p.Ear.Pool = elsewhere(t, pgtest.New(t).URL).pool
	p.Timing.SelfCheckWait = 20 * time.Millisecond
	p.start()
	p.await("the lane to be deaf", p.Deaf)
	for range 3 {
		before := p.logged(lost)
		pgtest.WaitFor(t, "a connection", func(context.Context) (bool, error) { return len(b.connections(ears)) == 1, nil })
		b.Exec("SELECT pg_terminate_backend($1, 10000)", b.connections(ears)[0])
		// It is said twice where the connection ends within the check of a fresh one.
		p.await("a lost connection", func() bool { return p.logged(lost) > before })
		b.Exec(silent)
		b.requireDrained()
	}
	require.True(t, p.Deaf())
	require.Equal(t, 1, p.logged(deaf))
}
