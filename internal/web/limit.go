package web

import (
	"net"
	"net/http"
	"sync"
)

const (
	// maxConnections are open at a time; more wait in the kernel. Each takes a
	// descriptor, of which the databases need some, too. There is room for connections
	// that send their headers slowly, so that health checks get through.
	maxConnections = 512
	// maxRequests are served at a time, health checks not counted.
	maxRequests = 128
)

// limitRequests serves at most maxRequests at a time. Further ones wait. Health checks do
// not.
func limitRequests(next http.Handler) http.Handler {
	running := make(chan struct{}, maxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == healthPath || r.URL.Path == readyPath {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case running <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		defer func() { <-running }()
		next.ServeHTTP(w, r)
	})
}

// limited accepts no connection while maxConnections are open. It hands out the
// connections themselves: a wrapped one, as of x/net/netutil, has no CloseWrite, without
// which net/http resets the connection of a refused request before the client has read
// why.
type limited struct {
	net.Listener

	// open has one entry per connection, from before Accept returns it.
	open   chan struct{}
	closed chan struct{}
	close  func()
}

func limit(listener net.Listener) *limited {
	closed := make(chan struct{})
	return &limited{
		Listener: listener, open: make(chan struct{}, maxConnections), closed: closed,
		close: sync.OnceFunc(func() { close(closed) }),
	}
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
	return conn, nil
}

// changed is the server's hook, which is told once of the end of each connection. None is
// hijacked.
func (l *limited) changed(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		<-l.open
	}
}

func (l *limited) Close() error {
	l.close()
	return l.Listener.Close() //nolint:wrapcheck // as above
}
