package listen_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a subscription and the server. It can stall the connections that
// are open, as a network does that loses packets: nothing arrives any more, and nobody is
// told.
type proxy struct {
	t     *testing.T
	mu    sync.Mutex
	links []*link
	copy  sync.WaitGroup
	dials atomic.Int64
}

type link struct {
	client, server net.Conn
	stalled        atomic.Bool
}

func newProxy(t *testing.T) *proxy {
	p := &proxy{t: t}
	t.Cleanup(func() { p.cut(); p.copy.Wait() })
	return p
}

// cut ends what is open now.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		_, _ = l.client.Close(), l.server.Close()
	}
}

func (p *proxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	p.dials.Add(1)
	server, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("dial server: %w", err)
	}
	outer, inner := net.Pipe()
	l := &link{client: inner, server: server}
	p.mu.Lock()
	p.links = append(p.links, l)
	p.mu.Unlock()
	p.copy.Go(func() { l.forward(l.server, l.client) })
	p.copy.Go(func() { l.forward(l.client, l.server) })
	return outer, nil
}

// forward ends both connections with the one that it reads from.
func (l *link) forward(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if l.stalled.Load() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// stall stalls what is open now. The end of the test cuts it first: a pool that closes
// would wait for it for 15 s.
func (p *proxy) stall() {
	p.t.Cleanup(p.cut)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		l.stalled.Store(true)
	}
}
