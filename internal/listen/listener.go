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

// Channel is the one that wake triggers notify, with the kind as payload.
const Channel = "sexton_wake"

// Ear listens on one connection for all subscriptions of a database.
type Ear struct {
	Database string
	// Conn dials the connection that listens. It must be direct: through a transaction
	// pooler LISTEN does not deliver.
	Conn *pgx.ConnConfig
	// Pool sends the ear's own notifications, by which it finds out whether it hears, and
	// the queries of sleeping subscriptions.
	Pool *pgxpool.Pool
	// Sessions are direct connections too. A subscription has one of them while it is
	// awake.
	Sessions *pgxpool.Pool
	Logger   *slog.Logger
	Timing   Timing
	// Heard, if set, is told of notifications on the channel Topic as well. It must not
	// block.
	Topic string
	Heard func(payload string)

	subscriptions []*Subscription
	timing        Timing
	outage        outage
	// call is the payload of the ear's own notifications, answered is true once the last
	// one has come back.
	call                      string
	connected, deaf, answered atomic.Bool
	// checked is closed once the first connection is checked or has failed: before, a
	// subscription could only poll.
	checked chan struct{}
	check   sync.Once
	// unanswered cuts a connection on which LISTEN gets no answer.
	unanswered *time.Timer

	mu   sync.Mutex
	conn *pgx.Conn
	// why says why the ear itself has cut its connection.
	why error
}

var _ pgxlisten.BacklogHandler = (*Ear)(nil)

// Add makes subscriptions hear by the ear and run with it.
func (e *Ear) Add(subscriptions ...*Subscription) {
	for _, l := range subscriptions {
		l.Ear, l.woken = e, make(chan struct{}, 1)
		e.subscriptions = append(e.subscriptions, l)
	}
}

// Run listens, and serves the subscriptions, until ctx ends. What goes wrong is logged
// once per outage and tried again after about a second.
func (e *Ear) Run(ctx context.Context) {
	e.timing, e.call, e.checked = e.Timing.withDefaults(), "check "+rand.Text(), make(chan struct{})
	e.outage = outage{
		log: e.Logger.With("database", e.Database), lost: "wake-up connection lost, dialling again",
		back: "wake-up connection is back",
	}
	listener := &pgxlisten.Listener{Connect: e.dial, LogError: e.failed, ReconnectDelay: e.timing.Reconnect}
	listener.Handle(Channel, e)
	if e.Heard != nil {
		listener.Handle(e.Topic, pgxlisten.HandlerFunc(e.HandleNotification))
	}
	var running sync.WaitGroup
	running.Go(func() { e.checkItself(ctx) })
	for _, l := range e.subscriptions {
		running.Go(func() {
			select {
			case <-e.checked:
				l.run(ctx)
			case <-ctx.Done():
			}
		})
	}
	_ = listener.Listen(ctx) // It ends with ctx alone.
	e.connected.Store(false)
	running.Wait()
}

// hears reports whether a writer's notification would arrive.
func (e *Ear) hears() bool { return e.connected.Load() && !e.deaf.Load() }

func (e *Ear) dial(ctx context.Context) (*pgx.Conn, error) {
	e.mu.Lock()
	e.why = nil // That of the last cut is none for a connection that cannot be had.
	e.mu.Unlock()
	conn, err := pgx.ConnectConfig(ctx, e.Conn)
	if err != nil {
		return nil, err //nolint:wrapcheck // the listener words it
	}
	e.mu.Lock()
	e.conn = conn
	e.mu.Unlock()
	e.unanswered = time.AfterFunc(e.timing.Answer, func() { e.cut(conn, errStalled) })
	return conn, nil
}

var (
	errStalled = errors.New("the connection does not hear its own notifications any more")
	errDeaf    = errors.New("the connection does not hear, as the ones before")
)

// cut closes the socket under a connection that another goroutine waits on.
func (e *Ear) cut(conn *pgx.Conn, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == conn {
		e.why = why
		_ = conn.PgConn().Conn().Close()
	}
}

// failed is called by the listener, which dials again. Subscriptions look, as they hear
// nothing from now on and have to poll.
func (e *Ear) failed(ctx context.Context, err error) {
	if e.unanswered != nil {
		e.unanswered.Stop()
	}
	e.mu.Lock()
	e.conn = nil
	if e.why != nil {
		err = e.why
	}
	e.mu.Unlock()
	if errors.Is(err, errDeaf) {
		return // Subscriptions poll, and the next connection may hear.
	}
	e.connected.Store(false)
	e.outage.note(ctx, err)
	e.wake("")
	e.check.Do(func() { close(e.checked) })
}

// HandleBacklog is called by the listener once a connection listens, and checks whether
// it hears. Silence means that LISTEN does not deliver there, as through a transaction
// pooler, and subscriptions poll. Notifications before LISTEN and during the check
// reached no subscription, so all subscriptions look.
func (e *Ear) HandleBacklog(ctx context.Context, _ string, conn *pgx.Conn) error {
	e.unanswered.Stop()
	err := e.notify(ctx)
	heard := false
	if err == nil {
		heard, err = e.hear(ctx, conn)
	}
	if err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // Otherwise the listener would go on with it.
		return err
	}
	e.outage.note(ctx, nil)
	e.connected.Store(true)
	e.found(ctx, heard)
	e.check.Do(func() { close(e.checked) })
	return nil
}

// found notes whether the ear hears. All subscriptions look, and go on as that has it.
func (e *Ear) found(ctx context.Context, hears bool) {
	switch wasDeaf := e.deaf.Swap(!hears); {
	case hears && wasDeaf:
		e.outage.log.InfoContext(ctx, "notifications arrive again")
	case !hears && !wasDeaf:
		e.outage.log.WarnContext(ctx,
			"notifications do not arrive, polling instead: give the database's listen_url a direct connection",
			"poll_ms", e.timing.Poll.Milliseconds())
	}
	e.wake("")
}

// hear waits for the ear's own call.
func (e *Ear) hear(ctx context.Context, conn *pgx.Conn) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, e.timing.SelfCheckWait)
	defer cancel()
	for {
		heard, err := conn.WaitForNotification(waiting)
		switch {
		case err == nil && heard.Payload == e.call:
			return true, nil
		case err == nil:
			_ = e.HandleNotification(ctx, heard, conn) // It returns none.
		case waiting.Err() != nil && ctx.Err() == nil && !conn.IsClosed():
			return false, nil
		default:
			return false, fmt.Errorf("wait for notification: %w", err)
		}
	}
}

// HandleNotification is called by the listener for each notification, and does not block.
func (e *Ear) HandleNotification(ctx context.Context, n *pgconn.Notification, _ *pgx.Conn) error {
	switch {
	case n.Channel != Channel:
		e.Heard(n.Payload)
	case n.Payload == e.call:
		if e.answered.Store(true); e.deaf.Load() { // It came too late for the check, or a later one has come.
			e.found(ctx, true)
		}
	default:
		e.wake(n.Payload)
	}
	return nil
}

// wake leaves a token for the subscriptions of a kind; "" stands for all kinds.
func (e *Ear) wake(kind string) {
	for _, l := range e.subscriptions {
		if kind == "" || kind == l.Kind {
			l.call()
		}
	}
}

// checkItself notifies the ear at every interval until ctx ends. If the notification does
// not arrive, the connection is stalled or deaf. It is closed, and the listener dials
// another one.
func (e *Ear) checkItself(ctx context.Context) {
	for pace.Sleep(ctx, e.timing.SelfCheck) == nil {
		e.mu.Lock()
		conn := e.conn
		e.mu.Unlock()
		if conn == nil || !e.connected.Load() {
			continue
		}
		e.answered.Store(false)
		if e.notify(ctx) != nil || pace.Sleep(ctx, e.timing.SelfCheckWait) != nil {
			continue
		}
		switch {
		case e.answered.Load():
		case e.deaf.Load():
			e.cut(conn, errDeaf)
		default:
			e.cut(conn, errStalled)
		}
	}
}

// notify sends the ear's own notification.
func (e *Ear) notify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.timing.Answer)
	defer cancel()
	_, err := e.Pool.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", Channel, e.call)
	return problem.Doing(err, "notify itself")
}

// outage logs its beginning and its end, and at debug level what is in between.
type outage struct {
	log        *slog.Logger
	lost, back string
	since      time.Time
}

func (o *outage) note(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && o.since.IsZero():
		o.since = time.Now()
		o.log.WarnContext(ctx, o.lost, "error", err) //nolint:sloglint // ear and subscription have their own words
	case err != nil:
		o.log.DebugContext(ctx, o.lost, "error", err) //nolint:sloglint // ear and subscription have their own words
	case !o.since.IsZero():
		o.log.InfoContext(ctx, o.back, "outage_ms", time.Since(o.since).Milliseconds()) //nolint:sloglint // ear and subscription have their own words
		o.since = time.Time{}
	}
}
