package listen

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// session is one connection's life.
type session struct {
	lane   *Lane
	timing Timing
	log    *slog.Logger
	conn   *pgx.Conn
	// well is called whenever the session has got through a round of looking and working.
	well func()
	// awake tells that the connection holds the awake lock.
	awake bool
	// checked is when the connection was last asked to hear itself.
	checked time.Time
}

// serve dials, listens and goes round until something fails.
func (s *session) serve(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, s.lane.Conn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	s.conn = conn
	defer func() {
		// Closing drops the awake lock as well.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if err := s.exec(ctx, "LISTEN "+pgx.Identifier{Channel}.Sanitize()); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := s.checkHearing(ctx); err != nil {
		return err
	}
	s.lane.connected.Store(true)
	defer s.lane.connected.Store(false)
	for {
		rest, err := s.drain(ctx)
		if err != nil {
			return err
		}
		if rest == 0 {
			if rest, err = s.fallAsleep(ctx); err != nil {
				return err
			}
		}
		s.well()
		if rest == again {
			continue
		}
		if err := s.rest(ctx, rest); err != nil {
			return err
		}
	}
}

// again stands for a rest that is over before it began.
const again = time.Duration(-1)

// drain works until nothing is due. It returns for how long to leave alone what cannot be done now, or 0
// where nothing is due.
func (s *session) drain(ctx context.Context) (time.Duration, error) {
	for {
		due, err := s.due(ctx, false)
		if err != nil || !due.Now {
			return 0, err
		}
		if err := s.wake(ctx); err != nil {
			return 0, err
		}
		leave, err := s.lane.Work(ctx)
		if err != nil {
			return 0, fmt.Errorf("get work done: %w", err)
		}
		if leave > 0 {
			return leave, nil
		}
	}
}

func (s *session) due(ctx context.Context, fresh bool) (Due, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Answer)
	defer cancel()
	due, err := s.lane.Due(ctx, s.conn, fresh)
	if err != nil {
		return Due{}, fmt.Errorf("look what is due: %w", err)
	}
	return due, nil
}

// wake takes the awake lock if it can be had. Without it the lane works all the same, and writers go on
// notifying. Writers hold the lock in shared mode for an instant, so it is waited for, but never for long.
// A deaf lane does without: behind a transaction pooler the lock would stay with some server connection, and
// silence the writers for lanes that do hear.
func (s *session) wake(ctx context.Context) error {
	if s.awake || s.lane.Deaf() {
		return nil
	}
	// One round trip, and a timeout that the other statements of the connection do not inherit. The lock
	// belongs to the session and outlives the transaction.
	err := s.script(ctx, fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = %d; SELECT pg_catalog.pg_advisory_lock('%d'::int, '%d'::int); COMMIT",
		s.timing.LockTimeout.Milliseconds(), s.lane.Key1, s.lane.Key2))
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		s.awake = true
		return nil
	case errors.As(err, &pgErr) && pgErr.Code == "55P03":
		// The server may have granted the lock in the moment in which the time was over. The session would
		// keep it, and nobody would know.
		if err := s.script(ctx, "ROLLBACK; SELECT pg_catalog.pg_advisory_unlock_all()"); err != nil {
			return fmt.Errorf("drop awake lock: %w", err)
		}
		return nil
	default:
		return fmt.Errorf("take awake lock: %w", err)
	}
}

// fallAsleep drops the awake lock, waits at the barrier and looks once more. It returns again where
// something is due, or else for how long the lane may sleep.
func (s *session) fallAsleep(ctx context.Context) (time.Duration, error) {
	if s.awake {
		if err := s.exec(ctx, "SELECT pg_catalog.pg_advisory_unlock($1, $2)", s.lane.Key1, s.lane.Key2); err != nil {
			return 0, fmt.Errorf("drop awake lock: %w", err)
		}
		s.awake = false
	}
	barrier, err := s.raiseBarrier(ctx)
	if err != nil {
		return 0, err
	}
	for wait := s.timing.BarrierPoll; ; wait = min(2*wait, s.timing.BarrierPollMax) {
		open, err := barrier.open(ctx)
		if err != nil {
			return 0, err
		}
		// The look comes behind the barrier: its snapshot has all that the writers left.
		due, err := s.due(ctx, open)
		switch {
		case err != nil:
			return 0, err
		case due.Now:
			return again, nil
		case open:
			return s.longest(due), nil
		}
		if !pause(ctx, wait) {
			return 0, ctx.Err()
		}
	}
}

// longest is how long the lane may sleep without looking.
func (s *session) longest(due Due) time.Duration {
	limit := s.timing.Look
	if s.lane.Deaf() {
		limit = s.timing.Poll
	}
	if due.In > 0 {
		limit = min(limit, due.In)
	}
	return limit
}

// rest sleeps until a notification comes, the time is over, or it is time to check the hearing.
func (s *session) rest(ctx context.Context, limit time.Duration) error {
	limit = min(limit, s.timing.SelfCheck-time.Since(s.checked))
	if _, err := s.hear(ctx, limit, func(string) bool { return true }); err != nil {
		return err
	}
	if time.Since(s.checked) >= s.timing.SelfCheck {
		return s.checkHearing(ctx)
	}
	return nil
}

// hear waits for a notification that is wanted, and reports whether one came in time.
func (s *session) hear(ctx context.Context, limit time.Duration, wanted func(payload string) bool) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		notification, err := s.conn.WaitForNotification(waiting)
		switch {
		case err == nil:
			if notification.Channel == Channel && wanted(notification.Payload) {
				return true, nil
			}
		case ctx.Err() != nil:
			return false, ctx.Err()
		case waiting.Err() != nil && !s.conn.IsClosed():
			return false, nil
		default:
			return false, fmt.Errorf("wait for notification: %w", err)
		}
	}
}

var errStalled = errors.New("the connection does not hear its own notifications any more")

// checkHearing sends a notification over another connection and waits for it. Silence on a connection that
// has been heard before means that it is stalled; on a fresh one, that LISTEN does not deliver there, as
// through a transaction pooler, and the lane polls.
func (s *session) checkHearing(ctx context.Context) error {
	fresh := s.checked.IsZero()
	s.checked = time.Now()
	call := "check " + rand.Text()
	if err := s.call(ctx, call); err != nil {
		return err
	}
	// Notifications for the lane that come in between are no loss: it looks right afterwards.
	heard, err := s.hear(ctx, s.timing.SelfCheckWait, func(payload string) bool { return payload == call })
	switch {
	case err != nil:
		return err
	case heard && s.lane.deaf.Swap(false):
		s.log.InfoContext(ctx, "notifications arrive again")
	case !heard && !fresh && !s.lane.Deaf():
		return errStalled
	case !heard && !s.lane.deaf.Swap(true):
		s.log.WarnContext(ctx, "notifications do not arrive, polling instead: give the database's listen_url a direct connection",
			"poll_ms", s.timing.Poll.Milliseconds())
	}
	return nil
}

// call sends a notification through the pool.
func (s *session) call(ctx context.Context, payload string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Answer)
	defer cancel()
	if _, err := s.lane.Pool.Exec(ctx, "SELECT pg_catalog.pg_notify($1, $2)", Channel, payload); err != nil {
		return fmt.Errorf("notify itself: %w", err)
	}
	return nil
}

// exec runs one short statement, and gives the connection up where the server does not answer.
func (s *session) exec(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Answer)
	defer cancel()
	_, err := s.conn.Exec(ctx, sql, args...)
	return err
}

// script runs several statements in one round trip.
func (s *session) script(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Answer)
	defer cancel()
	return s.conn.PgConn().Exec(ctx, sql).Close()
}
