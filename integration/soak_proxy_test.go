//go:build soak

package integration

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// soakProxy is the network between the workers and the server.
type soakProxy struct {
	listener net.Listener
	socket   string
	running  sync.WaitGroup

	mu    sync.Mutex
	links map[*soakLink]bool
	// unanswered is how many answers to COMMIT get lost with their connection.
	unanswered int
}

type soakLink struct {
	client, server net.Conn
	stalled        bool
}

// newSoakProxy returns a proxy and the URL of the database through it.
func newSoakProxy(t *testing.T, direct string) (*soakProxy, string) {
	t.Helper()
	u, err := url.Parse(direct)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	query := u.Query()
	p := &soakProxy{listener: listener, socket: query.Get("host") + "/.s.PGSQL." + query.Get("port"), links: map[*soakLink]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut(1)
		p.running.Wait()
	})
	u.Host, u.RawQuery = listener.Addr().String(), "sslmode=disable"
	return p, u.String()
}

func (p *soakProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "unix", p.socket)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &soakLink{client: client, server: server}
		p.mu.Lock()
		p.links[l] = true
		p.mu.Unlock()
		p.running.Go(func() { p.forward(l, server, client, false) })
		p.running.Go(func() { p.forward(l, client, server, true) })
	}
}

// forward ends both connections with the one that it reads from, or in place of the answer to a COMMIT.
func (p *soakProxy) forward(l *soakLink, to, from net.Conn, answers bool) {
	defer p.end(l)
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		stalled := l.stalled
		lost := answers && p.unanswered > 0 && bytes.Contains(buffer[:n], []byte("COMMIT\x00"))
		if lost {
			p.unanswered--
		}
		p.mu.Unlock()
		if lost {
			return
		}
		if stalled {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (p *soakProxy) end(l *soakLink) {
	_, _ = l.client.Close(), l.server.Close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// some does something to every nth connection.
func (p *soakProxy) some(nth int, do func(l *soakLink)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		if n++; n%nth == 0 {
			do(l)
		}
	}
}

func (p *soakProxy) cut(nth int) {
	p.some(nth, func(l *soakLink) { _, _ = l.client.Close(), l.server.Close() })
}

// stall lets nothing through any more, and tells neither side.
func (p *soakProxy) stall(nth int) { p.some(nth, func(l *soakLink) { l.stalled = true }) }

// heal ends the connections that are stalled, as the first packet does that a server gets which has forgotten its client.
func (p *soakProxy) heal() {
	p.some(1, func(l *soakLink) {
		if l.stalled {
			_, _ = l.client.Close(), l.server.Close()
		}
	})
}

// lose loses the answers to the next commits.
func (p *soakProxy) lose(commits int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unanswered = commits
}
