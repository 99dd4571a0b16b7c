package listen

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgxlisten"

	"sexton/internal/pace"
	"sexton/internal/problem"
)

// Channel is the channel on which wake triggers notify. The payload is the kind.
const Channel = "sexton_wake"

// Listener listens on one connection for all subscriptions of a database. pgxlisten opens
// a new connection after a loss.
type Listener struct {
	Database string
	// Conn is the configuration of the listening connection. The connection must be
	// direct, because LISTEN does not deliver through a transaction pooler.
	Conn *pgx.ConnConfig
	// Pool sends the notifications of the self-check, and runs the queries of sleeping
	// subscriptions.
	Pool *pgxpool.Pool
	// Sessions is a pool of direct connections. A subscription holds one of them while it
	// is awake.
	Sessions *pgxpool.Pool
	Logger   *slog.Logger
	Timing   Timing
	// OnTopic, if set, receives the payloads of notifications on the channel Topic. It
	// must not block.
	Topic   string
	OnTopic func(payload string)

	subscriptions []*Subscription
	timing        Timing
	outage        outage
	// selfCheck is the payload of the notifications that the listener sends to itself.
	// received is true if the last of them has arrived.
	selfCheck                    string
	connected, polling, received atomic.Bool
	// ready is closed when the first connection has been checked or has failed.
	// Subscriptions start after that, because they could only poll before.
	ready     chan struct{}
	readyOnce sync.Once
	// listenTimeout is the timer that closes a connection on which LISTEN gets no
	// response.
	listenTimeout *time.Timer

	mu   sync.Mutex
	conn *pgx.Conn
	// closeReason is the reason for which the listener itself closed its connection, or
	// nil.
	closeReason error
}

var _ pgxlisten.BacklogHandler = (*Listener)(nil)

// Add adds subscriptions, which Run serves.
func (l *Listener) Add(subscriptions ...*Subscription) {
	for _, sub := range subscriptions {
		sub.Listener, sub.token = l, make(chan struct{}, 1)
		l.subscriptions = append(l.subscriptions, sub)
	}
}

// Run listens and serves the subscriptions until ctx ends. It logs the loss of the
// connection once per outage and reconnects after about a second.
func (l *Listener) Run(ctx context.Context) {
	l.timing, l.selfCheck, l.ready = l.Timing.withDefaults(), "check "+rand.Text(), make(chan struct{})
	l.outage = outage{
		log: l.Logger.With("database", l.Database), failed: "wakeup_connection_lost",
		recovered: "wakeup_connection_restored",
	}
	listener := &pgxlisten.Listener{Connect: l.dial, LogError: l.handleError, ReconnectDelay: l.timing.Reconnect}
	listener.Handle(Channel, l)
	if l.OnTopic != nil {
		listener.Handle(l.Topic, pgxlisten.HandlerFunc(l.HandleNotification))
	}
	var running sync.WaitGroup
	running.Go(func() { l.runSelfChecks(ctx) })
	for _, sub := range l.subscriptions {
		running.Go(func() {
			select {
			case <-l.ready:
				sub.run(ctx)
			case <-ctx.Done():
			}
		})
	}
	_ = listener.Listen(ctx) // Listen returns only when ctx ends.
	l.connected.Store(false)
	running.Wait()
}

// receives reports whether the listener currently receives notifications.
func (l *Listener) receives() bool { return l.connected.Load() && !l.polling.Load() }

func (l *Listener) dial(ctx context.Context) (*pgx.Conn, error) {
	l.mu.Lock()
	l.closeReason = nil // An earlier reason does not explain why the next connection fails.
	l.mu.Unlock()
	conn, err := pgx.ConnectConfig(ctx, l.Conn)
	if err != nil {
		return nil, err //nolint:wrapcheck // pgxlisten adds the context
	}
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
	l.listenTimeout = time.AfterFunc(l.timing.Answer, func() { l.closeConn(conn, errStalled) })
	return conn, nil
}

var (
	errStalled      = errors.New("the connection no longer receives its own notifications")
	errStillPolling = errors.New("the connection receives no notifications, like the previous ones")
)

// closeConn closes the socket of conn if conn is still the listening connection. Another
// goroutine may be waiting on the connection.
func (l *Listener) closeConn(conn *pgx.Conn, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == conn {
		l.closeReason = reason
		_ = conn.PgConn().Conn().Close()
	}
}

// handleError marks the listener as disconnected and wakes all subscriptions, which must
// poll until the next connection receives notifications. pgxlisten calls it before it
// reconnects.
func (l *Listener) handleError(ctx context.Context, err error) {
	if l.listenTimeout != nil {
		l.listenTimeout.Stop()
	}
	l.mu.Lock()
	l.conn = nil
	if l.closeReason != nil {
		err = l.closeReason
	}
	l.mu.Unlock()
	if errors.Is(err, errStillPolling) {
		return // The subscriptions already poll, and the next connection may receive notifications.
	}
	l.connected.Store(false)
	l.outage.record(ctx, err)
	l.wake("")
	l.readyOnce.Do(func() { close(l.ready) })
}

// HandleBacklog checks whether notifications arrive on a new connection, and wakes all
// subscriptions. If notifications do not arrive, as through a transaction pooler, the
// subscriptions poll. pgxlisten calls HandleBacklog after LISTEN.
//
// Consider a writer that notified while no connection listened. If its rows were visible
// when LISTEN committed, the queries of the woken subscriptions see its rows. Otherwise
// it commits after LISTEN, and Postgres delivers its notification.
func (l *Listener) HandleBacklog(ctx context.Context, _ string, conn *pgx.Conn) error {
	l.listenTimeout.Stop()
	err := l.notifySelf(ctx)
	received := false
	if err == nil {
		received, err = l.awaitSelfCheck(ctx, conn)
	}
	if err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // pgxlisten would continue with the connection.
		return err
	}
	l.outage.record(ctx, nil)
	l.connected.Store(true)
	l.setReceives(ctx, received)
	l.readyOnce.Do(func() { close(l.ready) })
	return nil
}

// setReceives stores whether notifications arrive, and wakes all subscriptions so that
// they wait or poll accordingly.
func (l *Listener) setReceives(ctx context.Context, receives bool) {
	switch polled := l.polling.Swap(!receives); {
	case receives && polled:
		l.outage.log.InfoContext(ctx, "notifications_arrive_again")
	case !receives && !polled:
		l.outage.log.WarnContext(ctx, "notifications_do_not_arrive", "poll_ms", l.timing.Poll.Milliseconds(),
			"fix", "set the database's listen_url to a direct connection")
	}
	l.wake("")
}

// awaitSelfCheck waits for the listener's own notification and reports whether it arrived
// in time.
func (l *Listener) awaitSelfCheck(ctx context.Context, conn *pgx.Conn) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, l.timing.SelfCheckWait)
	defer cancel()
	for {
		notification, err := conn.WaitForNotification(waiting)
		switch {
		case err == nil && notification.Payload == l.selfCheck:
			return true, nil
		case err == nil:
			_ = l.HandleNotification(ctx, notification, conn) // HandleNotification never returns an error.
		case waiting.Err() != nil && ctx.Err() == nil && !conn.IsClosed():
			return false, nil
		default:
			return false, fmt.Errorf("wait for notification: %w", err)
		}
	}
}

// HandleNotification wakes the subscriptions of the notified kind, or passes the payload
// of Topic on. pgxlisten calls it for each notification, so it must not block.
func (l *Listener) HandleNotification(ctx context.Context, n *pgconn.Notification, _ *pgx.Conn) error {
	switch {
	case n.Channel != Channel:
		l.OnTopic(n.Payload)
	case n.Payload == l.selfCheck:
		if l.received.Store(true); l.polling.Load() { // The notification arrived after its self-check had timed out.
			l.setReceives(ctx, true)
		}
	default:
		l.wake(n.Payload)
	}
	return nil
}

// wake gives a token to the subscriptions of a kind, or to all subscriptions if kind is
// empty.
func (l *Listener) wake(kind string) {
	for _, sub := range l.subscriptions {
		if kind == "" || kind == sub.Kind {
			sub.leaveToken()
		}
	}
}

// runSelfChecks sends the listener a notification at every interval until ctx ends. If
// the notification does not arrive, the connection is stalled or cannot receive.
// runSelfChecks then closes the connection, and pgxlisten opens a new one.
func (l *Listener) runSelfChecks(ctx context.Context) {
	for pace.Sleep(ctx, l.timing.SelfCheck) == nil {
		l.mu.Lock()
		conn := l.conn
		l.mu.Unlock()
		if conn == nil || !l.connected.Load() {
			continue
		}
		l.received.Store(false)
		if l.notifySelf(ctx) != nil || pace.Sleep(ctx, l.timing.SelfCheckWait) != nil {
			continue
		}
		switch {
		case l.received.Load():
		case l.polling.Load():
			l.closeConn(conn, errStillPolling)
		default:
			l.closeConn(conn, errStalled)
		}
	}
}

// notifySelf sends the notification of the self-check through Pool.
func (l *Listener) notifySelf(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.timing.Answer)
	defer cancel()
	_, err := l.Pool.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", Channel, l.selfCheck)
	return problem.Doing(err, "send a test notification")
}

// outage logs the first error and the recovery of an outage. It logs the errors in
// between at debug level.
type outage struct {
	log               *slog.Logger
	failed, recovered string
	since             time.Time
}

func (o *outage) record(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && o.since.IsZero():
		o.since = time.Now()
		o.log.WarnContext(ctx, o.failed, "error", err) //nolint:sloglint // listener and subscription have their own events
	case err != nil:
		o.log.DebugContext(ctx, o.failed, "error", err) //nolint:sloglint // listener and subscription have their own events
	case !o.since.IsZero():
		o.log.InfoContext(ctx, o.recovered, "outage_ms", time.Since(o.since).Milliseconds()) //nolint:sloglint // listener and subscription have their own events
		o.since = time.Time{}
	}
}
