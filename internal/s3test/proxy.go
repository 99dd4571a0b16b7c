package s3test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Fault is a simulated fault of one connection.
type Fault int

// The faults that the proxy can simulate.
const (
	// Pass forwards the request and the response.
	Pass Fault = iota
	// Reset closes the connection before the server gets any part of the request.
	Reset
	// Cut forwards the request and closes the connection when the response begins. The
	// server has then executed the request.
	Cut
	// Stall keeps the connection open and forwards nothing.
	Stall
	// Slow delays the request and the response by Delay.
	Slow
	// Busy answers with status 503, and Deny with status 403. The server gets no request.
	Busy
	Deny
)

// Delay is the delay of a Slow connection in each direction.
const Delay = 50 * time.Millisecond

// Proxy is a network between a client and the server. The server closes each connection
// after one request, so the proxy parses only the first request of a connection.
type Proxy struct {
	listener net.Listener
	socket   string
	running  sync.WaitGroup
	stop     context.CancelFunc
	ctx      context.Context //nolint:containedctx // ends all connections at the end of the test

	mu    sync.Mutex
	judge func(request string) Fault
	open  map[net.Conn]bool
	seen  []string
}

func newProxy(tb testing.TB, socket string) *Proxy {
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	p := &Proxy{listener: listener, socket: socket, open: map[net.Conn]bool{}}
	p.ctx, p.stop = context.WithCancel(context.WithoutCancel(tb.Context()))
	p.running.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// URL returns the address for clients.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// Fail sets the function that chooses the fault of each new connection by its request,
// for example "PUT /diffs/key". nil means Pass for all connections.
func (p *Proxy) Fail(judge func(request string) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge = judge
}

// Seen returns all requests so far in their order.
func (p *Proxy) Seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.seen...)
}

func (p *Proxy) close() {
	p.stop()
	_ = p.listener.Close()
	p.mu.Lock()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(conn) })
	}
}

// register adds a connection to those that are closed at the end of the test. The
// returned function closes and removes the connection.
func (p *Proxy) register(conn net.Conn) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[conn] = true
	if p.ctx.Err() != nil {
		_ = conn.Close()
	}
	return func() {
		_ = conn.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, conn)
	}
}

func (p *Proxy) serve(client net.Conn) {
	release := p.register(client)
	defer release()
	reader := bufio.NewReader(client)
	line, err := reader.ReadString('\n')
	if err != nil {
		return
	}
	request, _, _ := strings.Cut(strings.TrimSpace(line), " HTTP/")
	p.mu.Lock()
	p.seen = append(p.seen, request)
	fault := Pass
	if p.judge != nil {
		fault = p.judge(request)
	}
	p.mu.Unlock()
	switch fault {
	case Reset:
		reset(client)
		return
	case Stall:
		<-p.ctx.Done()
		return
	case Busy, Deny:
		answer := "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
		if fault == Deny {
			answer = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n<Error><Code>AccessDenied</Code></Error>"
		}
		_, _ = io.WriteString(client, answer)
		if tcp, ok := client.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		// If a part of the request were unread, closing would reset the connection, and
		// the client might not get the response.
		_, _ = io.Copy(io.Discard, reader)
		return
	case Pass, Cut, Slow:
	}
	p.forward(client, io.MultiReader(strings.NewReader(line), reader), fault)
}

// forward sends the request to the server and the response to the client, with a fault.
func (p *Proxy) forward(client net.Conn, request io.Reader, fault Fault) {
	server, err := (&net.Dialer{}).DialContext(p.ctx, "unix", p.socket)
	if err != nil {
		return
	}
	release := p.register(server)
	if fault == Slow {
		p.wait()
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(server, request)
	}()
	switch fault {
	case Cut:
		// The first byte of the response shows that the server has executed the request.
		_, _ = io.ReadFull(server, make([]byte, 1))
		reset(client)
	case Slow:
		answer := bufio.NewReader(server)
		_, _ = answer.Peek(1)
		p.wait()
		_, _ = io.Copy(client, answer)
	case Pass, Reset, Stall, Busy, Deny:
		_, _ = io.Copy(client, server)
	}
	release()
	_ = client.Close()
	<-sent
}

func (p *Proxy) wait() {
	timer := time.NewTimer(Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
	}
}

// reset closes a connection with a reset, so that the client gets an error instead of an
// end of file.
func reset(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if ok {
		_ = errors.Join(tcp.SetLinger(0), tcp.Close())
	}
}
