package web

import (
	"net"
	"net/http"
	"sync"
)

const (
	// maxConnections is the maximum number of open connections. Further connections wait
	// in the kernel. Each connection takes a file descriptor, which connections to
	// databases also need. The number is so large that clients that send their headers
	// slowly do not block health checks.
	maxConnections = 512
	// maxRequests is the maximum number of concurrent requests. Health checks are not
	// counted.
	maxRequests = 128
)

// limitRequests serves at most maxRequests requests at the same time. Further requests
// wait, except health checks.
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

// limited is a listener that accepts no connection while maxConnections are open. It does
// not wrap the connections, as x/net/netutil does: without CloseWrite, net/http resets
// the connection of a refused request before the client has read the response.
type limited struct {
	net.Listener

	// open has one entry per connection, which is added before Accept returns it.
	open   chan struct{}
	closed chan struct{}
	close  func()
}

// limit returns a listener with at most maxConnections open connections.
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
		return nil, err //nolint:wrapcheck // net/http checks the error's type.
	}
	return conn, nil
}

// release is the server's ConnState hook, which frees the place of a closed connection.
// net/http calls it once with StateClosed for each connection, because no handler hijacks
// one.
func (l *limited) release(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		<-l.open
	}
}

func (l *limited) Close() error {
	l.close()
	return l.Listener.Close() //nolint:wrapcheck // net/http checks the error's type.
}
