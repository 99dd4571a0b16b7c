package batch

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/lease"
)

// More connects further sessions beside the one of a pass, under the same lease.
type More struct {
	Pool *pgxpool.Pool
	// Like is the pass's own session.
	Like *Session

	conns []*pgxpool.Conn
}

const (
	// moreWithin bounds the wait for a connection. A pass that gets none goes on with what it has.
	moreWithin = 500 * time.Millisecond
	// spare are the connections that others must still find in the pool: leases are renewed and history is written there.
	spare = 2
)

// Session returns a further session, or nil where the pool has no connection to spare.
func (m *More) Session(ctx context.Context) *Session {
	if stat := m.Pool.Stat(); stat.AcquiredConns()+spare >= stat.MaxConns() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, moreWithin)
	defer cancel()
	conn, err := m.Pool.Acquire(ctx)
	if err != nil {
		return nil
	}
	m.conns = append(m.conns, conn)
	// On a connection that knows the texts the first round trip is a batch: taken for the quickest, it would have lasted no time.
	return &Session{
		Conn: conn.Conn(), Names: m.Like.Names, Fence: m.Like.Fence, Limits: m.Like.Limits, Kept: m.Like.Kept,
		Slot: len(m.conns) % lease.Slots, quickest: m.Like.quickest,
	}
}

// Release gives the connections back.
func (m *More) Release() {
	for _, conn := range m.conns {
		conn.Release()
	}
}
