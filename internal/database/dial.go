package database

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// deadAfter is the time after which a connection is closed if its peer is silent, for
// example after a power cut or if a firewall has dropped the connection's state. The
// kernel's defaults are two hours while waiting and 16 minutes while sending.
const deadAfter = 15 * time.Second

// dialer opens the connections of a database and sets socket options. The options cannot
// be parameters of the URL, because those are sent to the server.
type dialer struct {
	net.Dialer

	// pooled reports that connections go through a pooler. pooled is valid only if known
	// is true, which is the case after the first connection.
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
		Control: setUserTimeout,
	}}
}

var errNoCancel = errors.New("cancel requests are not sent through a pooler")

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

// connectedKey is the key under which a connection's custom data has the time at which
// the connection was opened.
const connectedKey = "sexton.database.connected"

// ConnectedBefore reports whether a connection of a pool was opened before a given time,
// so that the server has not crashed since then.
func ConnectedBefore(conn *pgx.Conn, moment time.Time) bool {
	since, known := conn.PgConn().CustomData()[connectedKey].(time.Time)
	return known && since.Before(moment)
}

// inspect records when the connection was opened. It also detects a pooler: the process
// ID that the pooler sends at the start differs from the ID of the server process.
func (d *dialer) inspect(ctx context.Context, conn *pgx.Conn) error {
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

// connection is a socket. If it leads to a pooler, RemoteAddr returns an address that
// dial refuses. pgx uses the remote address only for cancel requests. It sends one when
// the end of a context closes a connection, and pgbouncer 1.18 crashes on cancel
// requests.
type connection struct {
	net.Conn

	dialer *dialer
}

// nowhere is the network name of the address that dial refuses.
const nowhere = "nowhere"

func (c *connection) RemoteAddr() net.Addr {
	if c.dialer.pooled.Load() {
		return &net.UnixAddr{Net: nowhere}
	}
	return c.Conn.RemoteAddr()
}
