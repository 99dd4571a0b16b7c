package web_test

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/web"
)

// counting counts the connections that a server has at a time.
type counting struct {
	net.Listener

	open, most atomic.Int64
}

type counted struct {
	net.Conn

	listener *counting
	closed   atomic.Bool
}

func (l *counting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.most.Store(max(l.most.Load(), l.open.Add(1)))
	return &counted{Conn: conn, listener: l}, nil
}

func (c *counted) Close() error {
	if !c.closed.Swap(true) {
		c.listener.open.Add(-1)
	}
	return c.Conn.Close()
}

func TestStrangersTakeOnlySoManyConnections(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	count := &counting{Listener: listener}
	s := serveWith(t, config.HTTP{Token: "t0ken"}, web.Readiness{Ready: true}, func(server *web.Server) { server.Listener = count })

	const limit, strangers = 128, 200
	conns := make([]net.Conn, strangers)
	for i := range conns {
		conns[i], err = net.Dial("tcp", s.address)
		require.NoError(t, err)
		// Without its end, so that the connection stays open: until the server's patience is over.
		_, err = conns[i].Write([]byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\n"))
		require.NoError(t, err)
	}
	for _, conn := range conns {
		_, err = conn.Write([]byte("\r\n"))
		require.NoError(t, err)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.True(t, response.Close, "strangers keep no connection")
		require.NoError(t, response.Body.Close())
		require.NoError(t, conn.Close())
	}
	require.LessOrEqual(t, count.most.Load(), int64(limit))
}
