package schedule_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
	"sexton/internal/schedule"
)

func TestOfManyCopiesOneRuns(t *testing.T) {
	t.Parallel()

	const copies = 5
	db, c := newDB(t), at(t, "2026-03-01 12:00:30")
	tickedAt(t, db, "2026-02-28 11:00:00")
	for range copies {
		run(t, scheduler(t, db, c, "* * * * *"))
	}
	c.settle(t, copies)
	want := [][]string{{"k", "03-01 12:00:00"}}
	require.Equal(t, want, runs(db), "runs after the start")
	for _, tick := range []string{"03-01 12:01:00", "03-01 12:02:00", "03-01 12:03:00"} {
		c.advance(time.Minute)
		c.settle(t, copies)
		want = append(want, []string{"k", tick})
		require.Equal(t, want, runs(db))
	}
}

// Copies whose clocks differ count an interval from the recorded tick, not each from its own.
func TestCopiesShareOneInterval(t *testing.T) {
	t.Parallel()

	db := newDB(t)
	a, b := at(t, "2026-03-01 12:00:00"), at(t, "2026-03-01 12:00:20")
	for _, c := range []*clock{a, b} {
		run(t, scheduler(t, db, c, "@every 40s"))
		c.settle(t, 1)
	}
	for range 20 {
		a.pass(t, 10*time.Second)
		b.pass(t, 10*time.Second)
	}
	// The second copy's clock shows 12:03:40 by now.
	require.Equal(t, [][]string{
		{"k", "03-01 12:00:40"}, {"k", "03-01 12:01:20"}, {"k", "03-01 12:02:00"}, {"k", "03-01 12:02:40"}, {"k", "03-01 12:03:20"},
	}, runs(db))
}

// gated enqueues once the gate lets it, with the error that comes through it.
func gated(entered chan<- struct{}, gate <-chan error) func(context.Context, pgx.Tx, schedule.Tick) error {
	return func(ctx context.Context, tx pgx.Tx, tick schedule.Tick) error {
		if err := enqueue(ctx, tx, tick); err != nil {
			return err
		}
		entered <- struct{}{}
		select {
		case err := <-gate:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitsForRow waits until a session waits for the row of a schedule.
func waitsForRow(t *testing.T, db *dbtest.DB) {
	t.Helper()
	pgtest.WaitFor(t, "the second copy at the row's lock", func(ctx context.Context) (bool, error) {
		var waits bool
		err := db.Pool().QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%ScheduleAdvance%')`).Scan(&waits)
		return waits, err
	})
}

// The second copy meets the first one's open transaction: a commit leaves it nothing to do, a rollback all.
func TestTheRowDecidesAmongCopies(t *testing.T) {
	t.Parallel()

	for name, failure := range map[string]error{"commit": nil, "rollback": errors.New("refused")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db := newDB(t)
			tickedAt(t, db, "2026-03-01 12:00:00")
			a, b := at(t, "2026-03-01 12:01:30"), at(t, "2026-03-01 12:01:30")
			entered, gate := make(chan struct{}, 1), make(chan error, 1)
			first := scheduler(t, db, a, "* * * * *")
			first.Enqueue = gated(entered, gate)
			run(t, first)
			<-entered
			second := scheduler(t, db, b, "* * * * *")
			called := make(chan struct{}, 1)
			second.Enqueue = func(ctx context.Context, tx pgx.Tx, tick schedule.Tick) error {
				called <- struct{}{}
				return enqueue(ctx, tx, tick)
			}
			run(t, second)
			waitsForRow(t, db)
			gate <- failure
			b.settle(t, 1)
			a.settle(t, 1)
			require.Equal(t, [][]string{{"k", "03-01 12:01:00"}}, runs(db))
			require.Equal(t, failure != nil, len(called) == 1, "whether the second copy enqueued")
		})
	}
}
