//go:build linux

package database_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/pgtest"
)

// relay forwards TCP connections to a server. Like a pooler, it can replace the process
// ID that the server sends.
type relay struct {
	url     string
	pooler  bool
	cancels atomic.Int64
	running sync.WaitGroup
}

func newRelay(t *testing.T, d *pgtest.Database, pooler bool) *relay {
	r := &relay{pooler: pooler}
	listener := pgtest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	settings := pgtest.Must(pgx.ParseConfig(d.URL))(t)
	r.url = edit(t, d.URL, func(u *url.URL) {
		u.Host = listener.Addr().String()
		u.RawQuery = "sslmode=disable"
		u.User = url.User(settings.User)
	})
	socket := fmt.Sprintf("%s/.s.PGSQL.%d", settings.Host, settings.Port)
	r.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			r.running.Go(func() { r.serve(client, socket) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		r.running.Wait()
	})
	return r
}

func (r *relay) serve(client net.Conn, socket string) {
	defer func() { _ = client.Close() }()
	first := make([]byte, 4096)
	n, err := client.Read(first)
	if err != nil {
		return
	}
	const cancelRequest = 80877102
	if n == 16 && binary.BigEndian.Uint32(first[4:]) == cancelRequest {
		r.cancels.Add(1)
		return
	}
	server, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	_, _ = server.Write(first[:n])
	r.running.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	// Without a password the server's first messages follow immediately: the settings,
	// its process ID, and ReadyForQuery.
	for message := make([]byte, 5); ; {
		if _, err := io.ReadFull(server, message); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(message[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		if message[0] == 'K' && r.pooler {
			binary.BigEndian.PutUint32(body, 1)
		}
		_, _ = client.Write(append(append([]byte{}, message...), body...))
		if message[0] == 'Z' {
			break
		}
	}
	_, _ = io.Copy(client, server)
}

func TestConnectionsDetectADeadPeer(t *testing.T) {
	t.Parallel()
	r := newRelay(t, pgtest.New(t), false)
	db := pgtest.Must(open(t.Context(), r.url, r.url))(t)
	t.Cleanup(db.Close)
	pooled := pgtest.Acquire(t, db.Pool)
	direct := pgtest.ConnectAs(t, db.Direct)

	for _, conn := range []*pgx.Conn{pooled.Conn(), direct} {
		// The client closes the connection 15 s after the server's last response, both
		// while it waits and while it sends.
		require.Equal(t, 5, socketOption(t, conn, syscall.TCP_KEEPIDLE))
		require.Equal(t, 5, socketOption(t, conn, syscall.TCP_KEEPINTVL))
		require.Equal(t, 2, socketOption(t, conn, syscall.TCP_KEEPCNT))
		const userTimeout = 0x12
		require.Equal(t, 15_000, socketOption(t, conn, userTimeout))
	}
}

func socketOption(t *testing.T, conn *pgx.Conn, option int) int {
	socket, ok := database.Unwrap(conn.PgConn().Conn()).(syscall.Conn)
	require.True(t, ok)
	raw := pgtest.Must(socket.SyscallConn())(t)
	var value int
	var failed error
	require.NoError(t, raw.Control(func(fd uintptr) {
		value,
			failed = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, option)
	}))
	require.NoError(t, failed)
	return value
}

func TestPoolersGetNoCancelRequests(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	for _, pooler := range []bool{false, true} {
		r := newRelay(t, d, pooler)
		db := pgtest.Must(open(t.Context(), r.url, ""))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := db.Pool.Exec(ctx, "SELECT pg_sleep(1)")
		cancel()
		require.Error(t, err)
		// Close waits for the connections that a context has ended.
		db.Close()
		if pooler {
			require.Zero(t, r.cancels.Load())
		} else {
			pgtest.WaitFor(t, "the cancel request", func(context.Context) (bool, error) {
				return r.cancels.Load() == 1,
					nil
			})
		}
	}
}
