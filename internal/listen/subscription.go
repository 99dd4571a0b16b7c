package listen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
)

// Due is the result of a query for due work.
type Due struct {
	// Now is true if there are rows that the kind may process now.
	Now bool
	// In is the time until the next row falls due. It is 0 if no row falls due in the
	// future.
	In time.Duration
}

// Querier is the connection on which a subscription queries for due work.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Subscription is one kind of work in one database. Asleep it has no connection, and
// waits for a token or for the end of its maximum sleep. Awake it has one connection, for
// the awake lock, its queries for due work, and the barrier.
type Subscription struct {
	Kind     string
	Database string
	// Listener wakes the subscription. Listener.Add sets this field.
	Listener *Listener
	// Key1 and Key2 are the keys of the awake lock. Tables are the quoted and qualified
	// names of the tables whose rows wake the kind. The barrier waits for writers of
	// these tables.
	Key1, Key2 int32
	Tables     []string
	// Due queries for due work on the connection of the awake subscription. If fresh is
	// true, Due must not use cached results, because this is the last query before the
	// subscription sleeps.
	Due func(ctx context.Context, on Querier, fresh bool) (Due, error)
	// Work requests the work on the connection of the awake subscription. If wait is
	// true, Work returns when the work is done or cannot be done now. It returns the time
	// for which the subscription must pause, or 0 to query again.
	Work func(ctx context.Context, on dbsqlc.DBTX, wait bool) (time.Duration, error)

	timing Timing
	// token has one element if the subscription was notified since its last query.
	token chan struct{}
	// querying is true if the last query of the subscription succeeded.
	querying atomic.Bool
}

// Polls reports whether the subscription polls because notifications do not arrive.
func (sub *Subscription) Polls() bool { return sub.Listener != nil && sub.Listener.polling.Load() }

// Connected reports whether the subscription can query for its work, and either receives
// notifications or polls.
func (sub *Subscription) Connected() bool {
	return sub.Listener != nil && sub.Listener.connected.Load() && sub.querying.Load()
}

// run serves the subscription until ctx ends. After an error it pauses for about a second
// and opens a new session.
func (sub *Subscription) run(ctx context.Context) {
	sub.timing = sub.Listener.timing
	defer sub.querying.Store(false)
	outage := outage{
		log:    sub.Listener.Logger.With("kind", sub.Kind, "database", sub.Database),
		failed: "due_work_query_failed", recovered: "due_work_query_recovered",
	}
	for ctx.Err() == nil {
		d, err := sub.workUntilIdle(ctx, func() { outage.record(ctx, nil) })
		if err == nil {
			sub.sleepWithoutLock(ctx, d)
			continue
		}
		sub.querying.Store(false)
		outage.record(ctx, err)
		select {
		case <-time.After(sub.timing.Reconnect/2 + rand.N(sub.timing.Reconnect/2+1)):
		case <-ctx.Done():
		}
	}
}

// sleepWithoutLock sleeps without the awake lock. After d it queries on the listener's
// pool, and sleeps again if nothing is due. This query needs no barrier, because the
// subscription waited at the barrier before it fell asleep.
func (sub *Subscription) sleepWithoutLock(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-sub.token:
			return
		case <-ctx.Done():
			return
		}
		if !sub.Listener.receives() {
			return
		}
		querying, cancel := context.WithTimeout(ctx, sub.timing.Answer)
		due, err := sub.Due(querying, sub.Listener.Pool, true)
		cancel()
		if err != nil || due.Now {
			return // The subscription repeats a failed query on its own connection, and then logs the error.
		}
		timer.Reset(sub.maxSleep(due))
	}
}

// leaveToken gives the subscription a token, unless it already has one.
func (sub *Subscription) leaveToken() {
	select {
	case sub.token <- struct{}{}:
	default:
	}
}

// sleep returns after d, when it consumes a token, or when ctx ends.
func (sub *Subscription) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-sub.token:
	case <-ctx.Done():
	}
}

// workUntilIdle queries and works on one connection until nothing is due. It returns the
// time for which the subscription may sleep. It calls succeeded after each round.
func (sub *Subscription) workUntilIdle(ctx context.Context, succeeded func()) (sleep time.Duration, err error) {
	acquiring, cancel := context.WithTimeout(ctx, sub.timing.Answer)
	conn, err := sub.Listener.Sessions.Acquire(acquiring)
	cancel()
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	s := &session{subscription: sub, conn: conn}
	defer s.end(ctx)
	for ctx.Err() == nil {
		pause, err := s.work(ctx)
		if errors.Is(err, errOtherAwake) {
			succeeded()
			return sub.maxSleep(Due{}), nil
		}
		if err == nil && pause == 0 {
			sleep, err = s.fallAsleep(ctx)
		}
		if err != nil {
			return 0, err
		}
		succeeded()
		switch {
		case pause > 0:
			sub.sleep(ctx, pause) // The session keeps the awake lock during the pause, because work is still due.
		case sleep != queryAgain:
			return sleep, nil
		}
	}
	return 0, ctx.Err()
}

// session is the period from waking up to falling asleep of a subscription, on one
// connection.
type session struct {
	subscription *Subscription
	conn         *pgxpool.Conn
	// awake is true if the connection may hold the awake lock. It is set before the lock
	// is requested.
	awake bool
	// otherAwake is true if another session held the awake lock when the last request for
	// the lock failed.
	otherAwake bool
}

// end releases the connection to the pool. If the connection may hold the awake lock, end
// closes it first. Otherwise the pooled connection would keep the lock, and writers would
// not notify.
func (s *session) end(ctx context.Context) {
	lost := s.conn.Conn().IsClosed()
	if s.awake && !lost {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.conn.Conn().Close(closing)
	}
	s.conn.Release()
	if lost && ctx.Err() == nil {
		s.subscription.Listener.Sessions.Reset() // The pool's other connections may be lost, too.
	}
}

// queryAgain is the result of fallAsleep if work is due, so that the subscription does
// not sleep.
const queryAgain = time.Duration(-1)

// errOtherAwake ends a session because another session, usually of another replica, has
// the awake lock. The holder queries again after its barrier, and so finds the rows of
// all writers that did not notify. If the holder is killed or cannot query, the next
// query after MaxSleep finds these rows.
var errOtherAwake = errors.New("another session has the awake lock")

// work requests work until nothing is due. It returns 0 if nothing is due, or the time to
// pause if the work cannot be done now. If another session has the awake lock, work
// requests the work without waiting for it and returns errOtherAwake.
func (s *session) work(ctx context.Context) (time.Duration, error) {
	for {
		due, err := s.queryDue(ctx, false)
		if err != nil || !due.Now {
			return 0, err
		}
		if err := s.takeAwakeLock(ctx); err != nil {
			return 0, err
		}
		wait := s.awake || !s.otherAwake
		pause, err := s.subscription.Work(ctx, s.conn, wait)
		if err != nil {
			return 0, fmt.Errorf("request work: %w", err)
		}
		if !wait {
			return 0, errOtherAwake
		}
		if pause > 0 {
			return pause, nil
		}
	}
}

func (s *session) queryDue(ctx context.Context, fresh bool) (Due, error) {
	ctx, cancel := context.WithTimeout(ctx, s.subscription.timing.Answer)
	defer cancel()
	due, err := s.subscription.Due(ctx, genericPlan{s.conn.Conn()}, fresh)
	if err != nil {
		return Due{}, fmt.Errorf("query due work: %w", err)
	}
	s.subscription.querying.Store(true)
	return due, nil
}

// takeAwakeLock tries to take the awake lock, an exclusive session advisory lock. After
// its write, the trigger on the deletion table tries the same lock in shared mode, and
// notifies if it gets the lock. The lock is independent of snapshots and isolation
// levels. After a crash or failover of the server no session holds it, and writers
// notify.
//
// Writers hold the lock only for an instant, so takeAwakeLock waits for a short time.
// During that wait, writers find the lock taken and do not notify. So without the lock
// the session may skip the barrier only if another session holds the lock. If only
// writers hold it, the session works and waits at the barrier as if it had the lock.
//
// A subscription that polls never takes the lock. Through a transaction pooler some
// server connection would keep the lock, and writers would not notify the subscriptions
// that receive notifications.
func (s *session) takeAwakeLock(ctx context.Context) error {
	s.otherAwake = false
	if s.awake || !s.subscription.Listener.receives() {
		return nil
	}
	for {
		// The lock timeout is set in the same round trip and does not apply to later
		// statements of the connection. The lock belongs to the session and outlives the
		// transaction. A statement that fails may have taken the lock, so awake is set
		// first.
		s.awake = true
		err := s.exec(ctx,
			fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = %d; SELECT pg_catalog.pg_advisory_lock('%d'::int, '%d'::int); COMMIT",
				s.subscription.timing.LockTimeout.Milliseconds(), s.subscription.Key1, s.subscription.Key2))
		switch {
		case err == nil:
			return nil
		case pgcatalog.SQLState(err) != "55P03":
			return fmt.Errorf("take awake lock: %w", err)
		}
		late, err := s.releaseLateLock(ctx)
		if err != nil {
			return fmt.Errorf("release awake lock: %w", err)
		}
		s.awake = false
		if !late {
			return nil
		}
		// A writer may have found the late lock taken, and no session would query for its
		// rows. Try again.
	}
}

// releaseLateLock releases a lock that the server granted just after the timeout, and
// reports whether there was such a lock. The session would keep it otherwise.
// releaseLateLock also sets otherAwake.
func (s *session) releaseLateLock(ctx context.Context) (late bool, err error) {
	if err := s.exec(ctx, "ROLLBACK"); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.subscription.timing.Answer)
	defer cancel()
	const sql = `SELECT coalesce(pg_catalog.bool_or(lock.pid = pg_catalog.pg_backend_pid()), false),
			coalesce(pg_catalog.bool_or(lock.pid <> pg_catalog.pg_backend_pid()), false),
			pg_catalog.pg_advisory_unlock_all()
		FROM pg_catalog.pg_locks AS lock
		WHERE lock.locktype = 'advisory' AND lock.mode = 'ExclusiveLock' AND lock.granted AND lock.objsubid = 2
			AND lock.database = (SELECT db.oid FROM pg_catalog.pg_database AS db WHERE db.datname = pg_catalog.current_database())
			AND lock.classid = $1::int::pg_catalog.oid AND lock.objid = $2::int::pg_catalog.oid`
	err = s.conn.QueryRow(ctx, sql, s.subscription.Key1, s.subscription.Key2).Scan(&late, &s.otherAwake, nil)
	return late, err //nolint:wrapcheck // takeAwakeLock adds the context
}

// genericPlan runs queries with a generic plan. The setting is sent in the same round
// trip.
type genericPlan struct{ conn *pgx.Conn }

func (g genericPlan) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return database.After(ctx, g.conn, database.GenericPlan, sql, args...)
}

// fallAsleep releases the awake lock, waits at the barrier and queries for due work. It
// returns queryAgain if work is due, or else the time for which the subscription may
// sleep.
//
// A writer locks its table, writes its rows, tests the awake lock, and notifies if the
// lock is free. Its commit first makes the rows visible and then releases its locks. No
// wake-up is lost in any of these cases:
//
// The lock was free. The notification arrives after the rows are visible, and leaves a
// token. A token is consumed before a query and never after it, so that query sees the
// rows. HandleBacklog covers writers that notify while no connection listens.
//
// This session held the lock. The writer tested the lock before the unlock returned, so
// it held its table lock at that time. The barrier is raised after the unlock, on the
// same connection. Either the barrier waits for the writer, or the writer has ended. The
// query after the barrier sees its rows in both cases, even if the listener has died.
//
// A session lost its connection and with it the lock. The subscription opens another
// session within about a second. That session waits at the barrier although it never had
// the lock.
func (s *session) fallAsleep(ctx context.Context) (time.Duration, error) {
	if s.awake {
		unlock := fmt.Sprintf("SELECT pg_catalog.pg_advisory_unlock('%d'::int, '%d'::int)", s.subscription.Key1,
			s.subscription.Key2)
		if err := s.exec(ctx, unlock); err != nil {
			return 0, fmt.Errorf("release awake lock: %w", err)
		}
		s.awake = false
	}
	barrier, err := s.raiseBarrier(ctx)
	if err != nil {
		return 0, err
	}
	for wait := s.subscription.timing.BarrierPoll; ; wait = min(2*wait, s.subscription.timing.BarrierPollMax) {
		open, err := barrier.open(ctx)
		if err != nil {
			return 0, err
		}
		// The token is consumed after the barrier and before the query, so the snapshot
		// of the query contains all rows of the barrier's writers and of the
		// notification.
		select {
		case <-s.subscription.token:
		default:
		}
		due, err := s.queryDue(ctx, open)
		switch {
		case err != nil:
			return 0, err
		case due.Now:
			return queryAgain, nil
		case open:
			return s.subscription.maxSleep(due), nil
		}
		s.subscription.sleep(ctx, wait)
	}
}

// maxSleep returns the time after which a sleeping subscription must query.
func (sub *Subscription) maxSleep(due Due) time.Duration {
	limit := sub.timing.MaxSleep - rand.N(sub.timing.MaxSleep/10+1)
	if !sub.Listener.receives() {
		limit = min(limit, sub.timing.Poll)
	}
	if due.In > 0 {
		limit = min(limit, due.In)
	}
	return limit
}

// exec runs statements in one round trip. If the server does not respond in time, pgx
// closes the connection.
func (s *session) exec(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, s.subscription.timing.Answer)
	defer cancel()
	return s.conn.Conn().PgConn().Exec(ctx, sql).Close()
}
