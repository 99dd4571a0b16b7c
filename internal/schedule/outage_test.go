package schedule_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/schedule"
)

// recorder keeps the messages of levels above debug.
type recorder struct {
	slog.Handler

	list *messages
}

type messages struct {
	mu   sync.Mutex
	text []string
}

func record(s *schedule.Scheduler) *messages {
	list := &messages{}
	s.Logger = slog.New(recorder{Handler: s.Logger.Handler(), list: list})
	return list
}

func (r recorder) WithAttrs(attrs []slog.Attr) slog.Handler {
	return recorder{Handler: r.Handler.WithAttrs(attrs), list: r.list}
}

func (r recorder) Handle(ctx context.Context, line slog.Record) error {
	if line.Level > slog.LevelDebug {
		r.list.mu.Lock()
		r.list.text = append(r.list.text, line.Message)
		r.list.mu.Unlock()
	}
	return r.Handler.Handle(ctx, line)
}

func (m *messages) logged() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.text)
}

func TestAFailingRunIsRetriedAndItsTickKept(t *testing.T) {
	t.Parallel()

	db, c := newDB(t), at(t, "2026-03-01 12:00:30")
	s := scheduler(t, db, c, "0 * * * *")
	messages := record(s)
	healthy := false
	s.Enqueue = func(ctx context.Context, tx pgx.Tx, tick schedule.Tick) error {
		if err := enqueue(ctx, tx, tick); err != nil || healthy {
			return err
		}
		return errors.New("refused")
	}
	tickedAt(t, db, "2026-03-01 11:00:00")
	run(t, s)
	c.settle(t, 1)
	for range 20 {
		c.pass(t, 5*time.Second)
	}
	require.Empty(t, runs(db), "runs of failed transactions")
	require.Equal(t, [][]string{{"k", "03-01 11:00:00"}}, lastTick(db))
	require.Equal(t, []string{"schedule fails and is retried"}, messages.logged())
	require.Equal(t, 5*time.Second, c.longest())
	require.Equal(t, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}, c.pauses[:3])

	healthy = true
	c.pass(t, 5*time.Second)
	require.Equal(t, [][]string{{"k", "03-01 12:00:00"}}, runs(db))
	require.Equal(t, []string{"schedule fails and is retried", "schedule works again"}, messages.logged())
}

func TestALostDatabase(t *testing.T) {
	t.Parallel()

	db, c := newDB(t), at(t, "2026-03-01 11:59:30")
	tickedAt(t, db, "2026-03-01 11:59:00")
	db.Exec("ALTER TABLE sexton.schedules RENAME TO hidden")
	s := scheduler(t, db, c, "* * * * *")
	messages := record(s)
	run(t, s)
	c.settle(t, 1)
	db.Exec("ALTER TABLE sexton.hidden RENAME TO schedules")
	c.pass(t, 5*time.Second)
	require.Equal(t, []string{"schedule fails and is retried", "schedule works again"}, messages.logged(), "an outage at the start")
	require.Empty(t, runs(db))

	db.Exec("ALTER TABLE sexton.schedules RENAME TO hidden")
	for range 60 {
		c.pass(t, 5*time.Second)
	}
	require.Len(t, messages.logged(), 3, "log lines: %q", messages.logged())
	db.Exec("ALTER TABLE sexton.hidden RENAME TO schedules")
	c.pass(t, 5*time.Second)
	require.Len(t, messages.logged(), 4, "log lines: %q", messages.logged())
	require.Equal(t, [][]string{{"k", "03-01 12:04:00"}}, runs(db), "one run for the ticks since 12:00")
}

// An answer that gets lost leaves open whether the transaction committed.
func TestALostAnswerCausesNoSecondRun(t *testing.T) {
	t.Parallel()

	db, c := newDB(t), at(t, "2026-03-01 12:00:30")
	tickedAt(t, db, "2026-03-01 11:59:00")
	s := scheduler(t, db, c, "* * * * *")
	messages := record(s)
	s.Enqueue = func(ctx context.Context, tx pgx.Tx, tick schedule.Tick) error {
		return errors.Join(enqueue(ctx, tx, tick), tx.Commit(ctx), errors.New("connection lost"))
	}
	run(t, s)
	c.settle(t, 1)
	c.pass(t, 5*time.Second)
	require.Equal(t, [][]string{{"k", "03-01 12:00:00"}}, runs(db))
	require.Equal(t, []string{"schedule fails and is retried", "schedule works again"}, messages.logged())
}

func TestACutConnection(t *testing.T) {
	t.Parallel()

	db, c := newDB(t), at(t, "2026-03-01 12:00:30")
	tickedAt(t, db, "2026-03-01 11:59:00")
	s := scheduler(t, db, c, "* * * * *")
	cut := false
	s.Enqueue = func(ctx context.Context, tx pgx.Tx, tick schedule.Tick) error {
		if err := enqueue(ctx, tx, tick); err != nil || cut {
			return err
		}
		cut = true
		_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	}
	run(t, s)
	c.settle(t, 1)
	require.Empty(t, runs(db))
	c.pass(t, 5*time.Second)
	require.Equal(t, [][]string{{"k", "03-01 12:00:00"}}, runs(db))
}
