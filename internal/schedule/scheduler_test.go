package schedule_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/schedule"
)

func TestAFreshInstallationWaitsForTheNextTick(t *testing.T) {
	t.Parallel()

	db, c := newDB(t), at(t, "2026-03-01 12:00:30")
	run(t, scheduler(t, db, c, "* * * * *"))
	c.settle(t, 1)
	require.Equal(t, [][]string{{"k", "03-01 12:00:30"}}, lastTick(db))
	require.Empty(t, runs(db))

	c.pass(t, 30*time.Second)
	c.pass(t, 59*time.Second)
	require.Equal(t, [][]string{{"k", "03-01 12:01:00"}}, runs(db))
	c.pass(t, time.Second)
	require.Equal(t, [][]string{{"k", "03-01 12:01:00"}, {"k", "03-01 12:02:00"}}, runs(db))
	require.Equal(t, [][]string{{"k", "03-01 12:02:00"}}, lastTick(db))
}

func TestStoppedOverMidnight(t *testing.T) {
	t.Parallel()

	db, c := newDB(t), at(t, "2026-03-01 12:00:00")
	stop := run(t, scheduler(t, db, c, "0 0 * * *"))
	c.settle(t, 1)
	c.set(date(t, "2026-03-01 23:59:00"))
	c.pass(t, time.Second)
	stop()
	require.Empty(t, runs(db))

	for _, restart := range []string{"2026-03-02 00:01:00", "2026-03-02 00:02:00", "2026-03-02 23:59:59"} {
		c = at(t, restart)
		stop = run(t, scheduler(t, db, c, "0 0 * * *"))
		c.settle(t, 1)
		stop()
		require.Equal(t, [][]string{{"k", "03-02 00:00:00"}}, runs(db), "runs after the start at %s", restart)
	}
}

func TestManyMissedTicksAreMadeUpForByOneRun(t *testing.T) {
	t.Parallel()

	db, c := newDB(t), at(t, "2026-03-01 12:00:30")
	tickedAt(t, db, "2023-03-01 12:00:00")
	run(t, scheduler(t, db, c, "*/5 * * * *"))
	c.settle(t, 1)
	require.Equal(t, [][]string{{"k", "03-01 12:00:00"}}, runs(db))
	require.Equal(t, [][]string{{"k", "03-01 12:00:00"}}, lastTick(db))
}

func TestSchedulesAreInUTC(t *testing.T) {
	t.Parallel()

	db, c := newDB(t), at(t, "2026-03-02 00:00:30")
	c.set(c.Now().In(time.FixedZone("east", 5*3600+1800)))
	tickedAt(t, db, "2026-02-20 12:00:00")
	run(t, scheduler(t, db, c, "0 0 * * *"))
	c.settle(t, 1)
	require.Equal(t, [][]string{{"k", "03-02 00:00:00"}}, runs(db))
}

func TestAClockThatIsSetBackRepeatsNothing(t *testing.T) {
	t.Parallel()

	db, c := newDB(t), at(t, "2026-03-01 12:00:30")
	tickedAt(t, db, "2026-03-01 11:59:00")
	s := scheduler(t, db, c, "* * * * *")
	messages := record(s)
	run(t, s)
	c.settle(t, 1)
	want := [][]string{{"k", "03-01 12:00:00"}}
	require.Equal(t, want, runs(db))

	c.set(date(t, "2026-03-01 11:30:00"))
	for range 30 {
		c.pass(t, time.Minute)
	}
	require.Equal(t, want, runs(db), "at %s", c.Now())
	require.Equal(t, []string{"last tick lies in the future, none comes before"}, messages.logged())
	c.pass(t, time.Minute)
	require.Equal(t, append(want, []string{"k", "03-01 12:01:00"}), runs(db))
}

// Nothing tells a waiting program that its clock was set, so it looks every minute.
func TestAClockThatIsSetForwardCausesOneRun(t *testing.T) {
	t.Parallel()

	db, c := newDB(t), at(t, "2026-03-01 12:00:30")
	run(t, scheduler(t, db, c, "0 * * * *"))
	c.settle(t, 1)
	c.set(date(t, "2026-03-02 09:30:00"))
	c.pass(t, time.Minute)
	require.Equal(t, [][]string{{"k", "03-02 09:00:00"}}, runs(db))
	require.Equal(t, time.Minute, c.longest())
	c.pass(t, time.Minute)
	require.Len(t, runs(db), 1)
}

func TestSchedulesAreIndependent(t *testing.T) {
	t.Parallel()

	db, c := newDB(t), at(t, "2026-03-01 12:00:00")
	s := scheduler(t, db, c, "* * * * *")
	s.Ticks = append(s.Ticks,
		schedule.Tick{Kind: "k", Database: "ci", Schedule: parse(t, "*/2 * * * *")},
		schedule.Tick{Kind: "other", Schedule: parse(t, "2 * * * *")},
		schedule.Tick{Kind: "never", Schedule: parse(t, "0 0 31 2 *")},
	)
	run(t, s)
	c.settle(t, 4)
	for range 2 {
		c.advance(time.Minute)
		c.settle(t, 4)
	}
	require.Equal(t, [][]string{{"k", "ci", "2"}, {"k", "main", "1"}, {"k", "main", "2"}, {"other", "", "2"}},
		db.Rows("SELECT kind, database, extract(minute FROM at) FROM runs ORDER BY 1, 2, 3"))
}

func TestTheSystemClock(t *testing.T) {
	t.Parallel()

	db := newDB(t)
	s := scheduler(t, db, nil, "@every 1s")
	s.Clock = nil
	run(t, s)
	pgtest.WaitFor(t, "a run", func(context.Context) (bool, error) { return len(runs(db)) > 0, nil })
}

func TestRunRefusesSchedulesThatCannotBeFollowed(t *testing.T) {
	t.Parallel()

	every := cron.Every(time.Minute)
	do := func(context.Context, pgx.Tx, schedule.Tick) error { return nil }
	for want, s := range map[string]schedule.Scheduler{
		"nothing enqueues":                       {Ticks: []schedule.Tick{{Kind: "k", Schedule: every}}},
		"a schedule without a kind":              {Enqueue: do, Ticks: []schedule.Tick{{Schedule: every}}},
		"kind k has no schedule":                 {Enqueue: do, Ticks: []schedule.Tick{{Kind: "k"}}},
		`kind k and database "main" occur twice`: {Enqueue: do, Ticks: []schedule.Tick{{Kind: "k", Database: "main", Schedule: every}, {Kind: "k", Database: "main", Schedule: every}}},
	} {
		require.EqualError(t, s.Run(t.Context()), "start schedules: "+want)
	}
}
