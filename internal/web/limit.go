package web

import (
	"net"
	"sync"
)

// maxConnections are served at a time; more wait in the kernel. Each takes a descriptor, of which the databases need some, too.
const maxConnections = 128

// limited accepts no connection while maxConnections are open.
type limited struct {
	net.Listener

	open   chan struct{}
	closed chan struct{}
	close  func()
}

func limit(listener net.Listener) *limited {
	closed := make(chan struct{})
	return &limited{Listener: listener, open: make(chan struct{}, maxConnections), closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.open <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.open
		return nil, err //nolint:wrapcheck // net/http looks what it is
	}
	return &accepted{Conn: conn, release: sync.OnceFunc(func() { <-l.open })}, nil
}

func (l *limited) Close() error {
	l.close()
	return l.Listener.Close() //nolint:wrapcheck // as above
}

type accepted struct {
	net.Conn

	release func()
}

func (c *accepted) Close() error {
	defer c.release()
	return c.Conn.Close() //nolint:wrapcheck // as above
}

// CloseWrite lets net/http end its answer to a request that it has not read to the end; a mere Close would take the answer back.
func (c *accepted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // as above
	}
	return nil
}
