package schedule_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
	"sexton/internal/schedule"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// clock stands still until it is told otherwise.
type clock struct {
	mu      sync.Mutex
	wall    time.Time
	passed  time.Duration
	waiting []waiter
	// pauses are all that were asked for.
	pauses []time.Duration
}

type waiter struct {
	until time.Duration
	fire  chan time.Time
}

var _ schedule.Clock = (*clock)(nil)

// at is a clock that shows a moment such as "2026-03-01 23:59:00", UTC.
func at(t *testing.T, moment string) *clock {
	t.Helper()
	return &clock{wall: date(t, moment)}
}

func date(t *testing.T, moment string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.DateTime, moment)
	require.NoError(t, err)
	return parsed
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses = append(c.pauses, d)
	w := waiter{until: c.passed + d, fire: make(chan time.Time, 1)}
	c.waiting = append(c.waiting, w)
	c.fire()
	return w.fire
}

// advance lets time pass.
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
	c.passed += d
	c.fire()
}

// set sets the clock without letting time pass.
func (c *clock) set(wall time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = wall
}

func (c *clock) fire() {
	late := []waiter{}
	for _, w := range c.waiting {
		if w.until > c.passed {
			late = append(late, w)
			continue
		}
		w.fire <- c.wall
	}
	c.waiting = late
}

// settle waits until all followers of the clock, so many, have done their work and wait for the time to pass.
func (c *clock) settle(t *testing.T, followers int) {
	t.Helper()
	pgtest.WaitFor(t, "the schedules to settle", func(context.Context) (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.waiting) == followers, nil
	})
}

// pass lets time pass and waits until one follower has done what came due.
func (c *clock) pass(t *testing.T, d time.Duration) {
	t.Helper()
	c.advance(d)
	c.settle(t, 1)
}

// longest is the longest pause that was asked for.
func (c *clock) longest() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := time.Duration(0)
	for _, p := range c.pauses {
		longest = max(longest, p)
	}
	return longest
}

func parse(t *testing.T, expression string) cron.Schedule {
	t.Helper()
	parsed, err := cron.ParseStandard(expression)
	require.NoError(t, err)
	return parsed
}

// newDB is a database with a table of runs.
func newDB(t *testing.T) *dbtest.DB {
	t.Helper()
	db := dbtest.New(t)
	db.Exec("CREATE TABLE runs (id bigint GENERATED ALWAYS AS IDENTITY, kind text, database text, at timestamptz)")
	return db
}

// enqueue stands for the insertion of a job.
func enqueue(ctx context.Context, tx pgx.Tx, tick schedule.Tick) error {
	_, err := tx.Exec(ctx, "INSERT INTO runs (kind, database, at) VALUES ($1, $2, $3)", tick.Kind, tick.Database, tick.At)
	return err
}

// runs are the enqueued runs in order, as ticks in UTC.
func runs(db *dbtest.DB) [][]string {
	return db.Rows("SELECT kind, to_char(at AT TIME ZONE 'UTC', 'MM-DD HH24:MI:SS') FROM runs ORDER BY id")
}

func lastTick(db *dbtest.DB) [][]string {
	return db.Rows("SELECT kind, to_char(last_tick AT TIME ZONE 'UTC', 'MM-DD HH24:MI:SS') FROM sexton.schedules ORDER BY kind, database")
}

// tickedAt stands for a copy that ran until then.
func tickedAt(t *testing.T, db *dbtest.DB, moment string) {
	t.Helper()
	db.Exec("INSERT INTO sexton.schedules (kind, database, last_tick) VALUES ('k', 'main', $1)", date(t, moment))
}

// scheduler has one schedule of kind k.
func scheduler(t *testing.T, db *dbtest.DB, c *clock, expression string) *schedule.Scheduler {
	t.Helper()
	return &schedule.Scheduler{
		DB: db.Connected, Clock: c, Enqueue: enqueue, Logger: pgtest.Logger(t),
		Ticks: []schedule.Tick{{Kind: "k", Database: "main", Schedule: parse(t, expression)}},
	}
}

// run starts a scheduler; the function that it returns stops it and waits for its end.
func run(t *testing.T, s *schedule.Scheduler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(2 * time.Minute):
			require.Fail(t, "the scheduler does not stop")
		}
	})
	t.Cleanup(stop)
	return stop
}
