package pgtest

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Network is a proxy between a test and a server. Clients use Dial as their DialFunc or
// the URL that Listen returns. Network can delay, stall and cut connections, and can drop
// answers.
type Network struct {
	// Delay is added to each round trip, in nanoseconds.
	Delay atomic.Int64
	// Trips and Dials count round trips and opened connections.
	Trips, Dials atomic.Int64
	// Down makes connections fail at their next use, and refuses new ones.
	Down atomic.Bool

	lose  atomic.Pointer[func(answer []byte) bool]
	mu    sync.Mutex
	links map[*link]struct{}
}

// Dial opens a connection that the network controls.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.Dials.Add(1)
	if n.Down.Load() {
		return nil, net.ErrClosed
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: conn, network: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.links == nil {
		n.links = map[*link]struct{}{}
	}
	n.links[l] = struct{}{}
	return l, nil
}

// Listen starts a local listener that forwards to the server of the given URL, and
// returns the URL of the same database at that listener.
func (n *Network) Listen(tb testing.TB, to string) string {
	config := Must(pgconn.ParseConfig(to))(tb)
	listener := Must((&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0"))(tb)
	var running sync.WaitGroup
	tb.Cleanup(func() {
		_ = listener.Close()
		n.Cut(1)
		running.Wait()
	})
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			network, address := pgconn.NetworkAddress(config.Host, config.Port)
			server, err := n.Dial(context.Background(), network, address)
			if err != nil {
				_ = client.Close()
				continue
			}
			done := func() { _, _ = client.Close(), server.Close() }
			running.Go(func() { defer done(); _, _ = io.Copy(server, client) })
			running.Go(func() { defer done(); _, _ = io.Copy(client, server) })
		}
	})
	u := Must(url.Parse(to))(tb)
	u.Host, u.RawQuery = listener.Addr().String(), "sslmode=disable"
	return u.String()
}

// Cut closes every nth open connection.
func (n *Network) Cut(nth int) {
	for _, l := range n.every(nth) {
		_ = l.Close()
	}
}

// Stall makes every nth open connection drop all data without an error on either side.
func (n *Network) Stall(nth int) {
	for _, l := range n.every(nth) {
		l.stalled.Store(true)
	}
}

// Heal closes the stalled connections, like a server that has lost its session state and
// resets the connection at the next packet.
func (n *Network) Heal() {
	for _, l := range n.every(1) {
		if l.stalled.Load() {
			_ = l.Close()
		}
	}
}

// LoseAnswers closes a connection instead of delivering an answer for which lost returns
// true.
func (n *Network) LoseAnswers(lost func(answer []byte) bool) { n.lose.Store(&lost) }

func (n *Network) every(nth int) (links []*link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := 0
	for l := range n.links {
		if i++; i%nth == 0 {
			links = append(links, l)
		}
	}
	return links
}

// link is one connection to the server through the network.
type link struct {
	net.Conn

	network *Network
	stalled atomic.Bool
	// pending is true if data was sent after the last answer. It separates round trips.
	pending atomic.Bool
}

func (l *link) Write(b []byte) (int, error) {
	if l.network.Down.Load() {
		_ = l.Close()
		return 0, net.ErrClosed
	}
	if !l.pending.Swap(true) {
		l.network.Trips.Add(1)
		<-time.After(time.Duration(l.network.Delay.Load()))
	}
	if l.stalled.Load() {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

func (l *link) Read(b []byte) (int, error) {
	for {
		n, err := l.Conn.Read(b)
		l.pending.Store(false)
		if err != nil {
			return n, err
		}
		if l.stalled.Load() {
			continue
		}
		lose := l.network.lose.Load()
		if l.network.Down.Load() || lose != nil && (*lose)(b[:n]) {
			_ = l.Close()
			return 0, io.ErrUnexpectedEOF
		}
		return n, nil
	}
}

// Close closes the connection.
func (l *link) Close() error {
	l.network.mu.Lock()
	delete(l.network.links, l)
	l.network.mu.Unlock()
	return l.Conn.Close()
}
