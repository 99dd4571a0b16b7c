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

// Due says what there is to do.
type Due struct {
	// Now is true while there are rows that the kind may take at this moment.
	Now bool
	// In is how long it takes until the next row falls due; 0 where none waits for its
	// time.
	In time.Duration
}

// Querier is the connection on which a subscription looks.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Subscription is one kind of work in one database.
type Subscription struct {
	Kind     string
	Database string
	// Ear hears for the subscription; its Add sets it.
	Ear *Ear
	// Key1 and Key2 are the awake lock; Tables are those whose rows wake the kind, and
	// whose writers the barrier waits for, quoted and qualified.
	Key1, Key2 int32
	Tables     []string
	// Due is the kind's one predicate, in one query. It runs on the connection that the
	// subscription is awake on. With fresh it may rely on nothing that it remembers: this
	// is the look before the subscription sleeps.
	Due func(ctx context.Context, on Querier, fresh bool) (Due, error)
	// Work asks for the work. With wait it returns when the work is done or cannot be
	// done now, and returns how long the subscription should leave the work alone: 0 to
	// look again. The connection is the one that the subscription is awake on.
	Work func(ctx context.Context, on dbsqlc.DBTX, wait bool) (time.Duration, error)

	timing Timing
	// woken holds a token from a notification until a look consumes it.
	woken chan struct{}
	// looking is true while the subscription's looks succeed.
	looking atomic.Bool
}

// Deaf reports whether notifications do not reach the subscription, so that it polls.
func (l *Subscription) Deaf() bool { return l.Ear != nil && l.Ear.deaf.Load() }

// Connected reports whether the subscription can look at its work, and is notified of it,
// or polls where it is deaf.
func (l *Subscription) Connected() bool {
	return l.Ear != nil && l.Ear.connected.Load() && l.looking.Load()
}

// run serves the subscription until ctx ends.
func (l *Subscription) run(ctx context.Context) {
	l.timing = l.Ear.timing
	defer l.looking.Store(false)
	failing := outage{
		log:  l.Ear.Logger.With("kind", l.Kind, "database", l.Database),
		lost: "looking for work fails and is tried again", back: "looking for work succeeds again",
	}
	for ctx.Err() == nil {
		rest, err := l.watch(ctx, func() { failing.note(ctx, nil) })
		if err == nil {
			l.rest(ctx, rest)
			continue
		}
		l.looking.Store(false)
		failing.note(ctx, err)
		select {
		case <-time.After(l.timing.Reconnect/2 + rand.N(l.timing.Reconnect/2+1)):
		case <-ctx.Done():
		}
	}
}

// rest sleeps without the awake lock. When the time is over it queries on the ear's pool
// what is due, and sleeps on if nothing is. No barrier is needed for that: the
// subscription waited at one when it fell asleep.
func (l *Subscription) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.woken:
			return
		case <-ctx.Done():
			return
		}
		if !l.Ear.hears() {
			return
		}
		looking, cancel := context.WithTimeout(ctx, l.timing.Answer)
		due, err := l.Due(looking, l.Ear.Pool, true)
		cancel()
		if err != nil || due.Now {
			return // A failed query is repeated, and logged, on the subscription's own connection.
		}
		timer.Reset(l.longest(due))
	}
}

// call leaves a token, unless there is one that the subscription has not consumed.
func (l *Subscription) call() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// sleep ends when the subscription is called or when the time is over.
func (l *Subscription) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.woken:
	case <-ctx.Done():
	}
}

// watch looks and works on one connection until there is nothing to do. It returns for
// how long the subscription may sleep. well is called after each round.
func (l *Subscription) watch(ctx context.Context, well func()) (rest time.Duration, err error) {
	acquiring, cancel := context.WithTimeout(ctx, l.timing.Answer)
	conn, err := l.Ear.Sessions.Acquire(acquiring)
	cancel()
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	s := &session{subscription: l, conn: conn}
	defer s.end(ctx)
	for ctx.Err() == nil {
		leave, err := s.drain(ctx)
		if errors.Is(err, errOtherAwake) {
			well()
			return l.longest(Due{}), nil
		}
		if err == nil && leave == 0 {
			rest, err = s.fallAsleep(ctx)
		}
		if err != nil {
			return 0, err
		}
		well()
		switch {
		case leave > 0:
			l.sleep(ctx, leave) // Awake: the rest of the work waits.
		case rest != again:
			return rest, nil
		}
	}
	return 0, ctx.Err()
}

// session is the time for which a subscription is awake, on one connection.
type session struct {
	subscription *Subscription
	conn         *pgxpool.Conn
	// awake is true from before the connection is sent for the awake lock until it is
	// known not to hold it.
	awake bool
	// otherAwake is true if another session held the awake lock exclusively after this
	// one had failed to get it.
	otherAwake bool
}

// end gives the connection back, without the awake lock: writers would be silent for as
// long as the pool keeps it.
func (s *session) end(ctx context.Context) {
	lost := s.conn.Conn().IsClosed()
	if s.awake && !lost {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.conn.Conn().Close(closing)
	}
	s.conn.Release()
	if lost && ctx.Err() == nil {
		s.subscription.Ear.Sessions.Reset() // What has befallen one connection may have befallen its neighbours.
	}
}

// again stands for a rest that is over before it began.
const again = time.Duration(-1)

// errOtherAwake ends a session without the awake lock. The holder, usually another copy
// of the worker, waits at the barrier and queries again after it has dropped the lock. So
// it finds the rows of all writers that did not notify.
var errOtherAwake = errors.New("another session has the awake lock")

// drain works until nothing is due. It returns for how long to leave alone what cannot be
// done now, or 0 where nothing is due. If another session has the awake lock, it asks for
// the work and returns errOtherAwake.
func (s *session) drain(ctx context.Context) (time.Duration, error) {
	for {
		due, err := s.due(ctx, false)
		if err != nil || !due.Now {
			return 0, err
		}
		if err := s.wake(ctx); err != nil {
			return 0, err
		}
		wait := s.awake || !s.otherAwake
		leave, err := s.subscription.Work(ctx, s.conn, wait)
		if err != nil {
			return 0, fmt.Errorf("get work done: %w", err)
		}
		if !wait {
			return 0, errOtherAwake
		}
		if leave > 0 {
			return leave, nil
		}
	}
}

func (s *session) due(ctx context.Context, fresh bool) (Due, error) {
	ctx, cancel := context.WithTimeout(ctx, s.subscription.timing.Answer)
	defer cancel()
	due, err := s.subscription.Due(ctx, generic{s.conn.Conn()}, fresh)
	if err != nil {
		return Due{}, fmt.Errorf("look what is due: %w", err)
	}
	s.subscription.looking.Store(true)
	return due, nil
}

// wake takes the awake lock if it can be had. Writers hold the lock in shared mode for an
// instant, so it is waited for, but never for long. While it waits, writers find the lock
// taken and do not notify. So without the lock it may only skip the barrier if another
// session holds the lock. If only writers hold it, it works and waits at the barrier as
// if it had the lock. A subscription that does not hear does without: behind a
// transaction pooler the lock would stay with some server connection, and silence the
// writers for subscriptions that do hear.
func (s *session) wake(ctx context.Context) error {
	s.otherAwake = false
	if s.awake || !s.subscription.Ear.hears() {
		return nil
	}
	for {
		// One round trip, and a timeout that the other statements of the connection do
		// not inherit. The lock belongs to the session and outlives the transaction. A
		// statement that fails may have got it.
		s.awake = true
		err := s.script(ctx,
			fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = %d; SELECT pg_catalog.pg_advisory_lock('%d'::int, '%d'::int); COMMIT",
				s.subscription.timing.LockTimeout.Milliseconds(), s.subscription.Key1, s.subscription.Key2))
		switch {
		case err == nil:
			return nil
		case pgcatalog.SQLState(err) != "55P03":
			return fmt.Errorf("take awake lock: %w", err)
		}
		late, err := s.dropLate(ctx)
		if err != nil {
			return fmt.Errorf("drop awake lock: %w", err)
		}
		s.awake = false
		if !late {
			return nil
		}
		// A writer may have found the lock held, and nobody would look at its rows. Try
		// again.
	}
}

// dropLate drops a lock that the server granted just after the timeout, and reports
// whether it did. Otherwise the session would keep the lock unnoticed. It also sets
// otherAwake.
func (s *session) dropLate(ctx context.Context) (late bool, err error) {
	if err := s.script(ctx, "ROLLBACK"); err != nil {
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
	return late, err //nolint:wrapcheck // wake adds the context
}

// generic has a query planned for any parameters, in the same round trip.
type generic struct{ conn *pgx.Conn }

func (g generic) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return database.Behind(ctx, g.conn, database.GenericPlan, sql, args...)
}

// fallAsleep drops the awake lock, waits at the barrier and looks once more. It returns
// again where something is due, or else for how long the subscription may sleep.
func (s *session) fallAsleep(ctx context.Context) (time.Duration, error) {
	if s.awake {
		unlock := fmt.Sprintf("SELECT pg_catalog.pg_advisory_unlock('%d'::int, '%d'::int)", s.subscription.Key1,
			s.subscription.Key2)
		if err := s.script(ctx, unlock); err != nil {
			return 0, fmt.Errorf("drop awake lock: %w", err)
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
		// The look comes behind the barrier and behind the token: its snapshot has all
		// that these writers left.
		select {
		case <-s.subscription.woken:
		default:
		}
		due, err := s.due(ctx, open)
		switch {
		case err != nil:
			return 0, err
		case due.Now:
			return again, nil
		case open:
			return s.subscription.longest(due), nil
		}
		s.subscription.sleep(ctx, wait)
	}
}

// longest is how long the subscription may sleep without looking.
func (l *Subscription) longest(due Due) time.Duration {
	limit := l.timing.Look - rand.N(l.timing.Look/10+1)
	if !l.Ear.hears() {
		limit = min(limit, l.timing.Poll)
	}
	if due.In > 0 {
		limit = min(limit, due.In)
	}
	return limit
}

// script runs statements in one round trip, and gives the connection up where the server
// does not answer.
func (s *session) script(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, s.subscription.timing.Answer)
	defer cancel()
	return s.conn.Conn().PgConn().Exec(ctx, sql).Close()
}
