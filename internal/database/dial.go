package database

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// deadAfter is for how long the other end of a connection may answer nothing at all
// before the connection is given up: after a power cut, or where a firewall has forgotten
// it. The kernel's own answer is two hours for one that waits, 16 minutes for one that
// sends.
const deadAfter = 15 * time.Second

// dialer makes the connections of a database. Its settings belong to the socket. As
// parameters of the URL they would reach the server.
type dialer struct {
	net.Dialer

	// pooled is known with the first connection.
	known, pooled atomic.Bool
}

func newDialer(timeout time.Duration) *dialer {
	const probes = 3
	return &dialer{Dialer: net.Dialer{
		Timeout: timeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: deadAfter / probes, Interval: deadAfter / probes,
			Count: probes - 1,
		},
		Control: giveUpUnanswered,
	}}
}

var errNoCancel = errors.New("no cancel request goes through a pooler")

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if network == nowhere {
		return nil, errNoCancel
	}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err //nolint:wrapcheck // pgx words it
	}
	return &connection{Conn: conn, dialer: d}, nil
}

// connectedKey is where a connection carries the time since when it is connected.
const connectedKey = "sexton.database.connected"

// ConnectedBefore reports whether a connection of a pool was there before a moment, so
// that no crash of the server lies in between.
func ConnectedBefore(conn *pgx.Conn, moment time.Time) bool {
	since, known := conn.PgConn().CustomData()[connectedKey].(time.Time)
	return known && since.Before(moment)
}

// look notes when the connection came to be, and finds out whether a pooler stands in
// between: it makes up the process id.
func (d *dialer) look(ctx context.Context, conn *pgx.Conn) error {
	conn.PgConn().CustomData()[connectedKey] = time.Now()
	if d.known.Load() {
		return nil
	}
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&pid); err != nil {
		return err //nolint:wrapcheck // the pool words it
	}
	d.pooled.Store(pid != conn.PgConn().PID())
	d.known.Store(true)
	return nil
}

// connection keeps pgx from sending cancel requests through a pooler, which it does with
// every connection that a context ends: pgbouncer 1.18 dies of them. pgx asks for the
// remote address for that purpose alone.
type connection struct {
	net.Conn

	dialer *dialer
}

// nowhere is the network of an address that nothing is sent to.
const nowhere = "nowhere"

func (c *connection) RemoteAddr() net.Addr {
	if c.dialer.pooled.Load() {
		return &net.UnixAddr{Net: nowhere}
	}
	return c.Conn.RemoteAddr()
}
