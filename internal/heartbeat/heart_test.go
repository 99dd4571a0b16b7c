package heartbeat_test

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/heartbeat"
	"sexton/internal/pgtest"
)

func TestBeatKeepsOneRow(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	h := newHeart(t, db, "one")
	h.Schedules = []string{"kind/main", "other/main"}
	require.False(t, h.Alive(), "alive before the first beat")
	require.NoError(t, h.Beat(t.Context()))
	require.True(t, h.Alive(), "alive after a beat")
	host := pgtest.Must(os.Hostname())(t)
	require.Equal(t, [][]string{{"one", host, strconv.Itoa(os.Getpid()), "{kind/main,other/main}"}},
		db.Rows("SELECT client_id, host, pid, schedules FROM sexton.clients"))

	db.Exec("UPDATE sexton.clients SET started_at = '2020-01-01Z', seen_at = '2020-01-01Z'")
	require.NoError(t, h.Beat(t.Context()))
	require.Equal(t, [][]string{{"t", "t"}},
		db.Rows("SELECT started_at = '2020-01-01Z', seen_at > clock_timestamp() - interval '1 minute' FROM sexton.clients"))
}

func TestRunBeatsAndReclaimsUntilItStops(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	h := newHeart(t, db, "one")
	h.Interval = 5 * time.Millisecond
	messages := recordLog(h)
	stop := run(t, h)
	for range 3 {
		before := time.Now()
		pgtest.Await(t, db.Pool(), "a new beat", "SELECT EXISTS (SELECT FROM sexton.clients WHERE seen_at > $1)",
			before)
	}
	require.True(t, h.Alive())

	mine, other := insert(t, db, job{clients: []string{"one"}, attempt: 1}),
		insert(t, db, job{clients: []string{"two"}, attempt: 1})
	require.Less(t, mine, other)
	holdLease(db, "mine", "one")
	holdLease(db, "others", "two")
	stop()
	require.Empty(t, clients(db))
	require.Equal(t, [][]string{{"others", "7"}}, heldLeases(db))
	require.Equal(t, [][]string{
		{"available", "0", `{"sexton:reclaim_count": 1}`},
		{"running", "1", `{}`},
	}, states(db))
	require.Equal(t, []string{"lease_reclaimed", "job_reclaimed"}, messages.Messages())
}

func TestRunReclaimsImmediately(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	insertClient(db, "dead", 3*3600)
	h := newHeart(t, db, "one")
	// With this interval, only the first heartbeat occurs during the test.
	h.Interval, h.Silence = time.Hour, 2*time.Hour
	run(t, h)
	pgtest.WaitFor(t, "the removal of the dead client's row", func(context.Context) (bool, error) {
		rows := clients(db)
		return len(rows) == 1 && rows[0][0] == "one", nil
	})
}

func TestRunLogsEachOutageOnce(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	h := newHeart(t, db, "one")
	h.Interval, h.Silence = 5*time.Millisecond, 2*time.Second
	messages := recordLog(h)
	waitForLines := func(count int) {
		pgtest.WaitFor(t, "log lines", func(context.Context) (bool, error) {
			return len(messages.Messages()) >= count,
				nil
		})
	}
	db.Exec("ALTER TABLE sexton.clients RENAME TO hidden")
	run(t, h)
	waitForLines(1)
	require.False(t, h.Alive(), "alive without a beat")
	db.Exec("ALTER TABLE sexton.hidden RENAME TO clients")
	waitForLines(2)
	db.Exec("ALTER TABLE sexton.clients RENAME TO hidden")
	waitForLines(3)
	// Alive becomes false after the silence of 2 s. Hundreds of heartbeats fail in that
	// time but cause only one log line.
	pgtest.WaitFor(t, "the end of the silence", func(context.Context) (bool, error) { return !h.Alive(), nil })
	db.Exec("ALTER TABLE sexton.hidden RENAME TO clients")
	waitForLines(4)
	pgtest.WaitFor(t, "the heart to be alive", func(context.Context) (bool, error) { return h.Alive(), nil })
	require.Equal(t, []string{"heartbeat_failed", "heartbeat_restored", "heartbeat_failed", "heartbeat_restored"},
		messages.Messages())
}

// A restart of the server silences all clients. The first client to resume its heartbeat
// must not declare the other clients dead.
func TestClientDoesNotReclaimAfterItsOwnSilence(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	insertClient(db, "two", 60)
	h := newHeart(t, db, "one")
	h.Interval, h.Silence = time.Hour, time.Nanosecond
	require.NoError(t, h.Beat(t.Context()))
	require.NoError(t, h.Beat(t.Context()))
	require.Equal(t, heartbeat.Reclaimed{}, pgtest.Must(h.Reclaim(t.Context()))(t))
	require.Equal(t, [][]string{{"one"}, {"two"}}, clients(db))
}

func TestWorkerDeclaredDeadInsertsItsRowAgain(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	h := newHeart(t, db, "one")
	messages := recordLog(h)
	require.NoError(t, h.Beat(t.Context()))
	require.Empty(t, messages.Messages())
	db.Exec("DELETE FROM sexton.clients")
	require.NoError(t, h.Beat(t.Context()))
	require.Equal(t, []string{"worker_was_declared_dead"}, messages.Messages())
	require.Equal(t, [][]string{{"one"}}, clients(db))
}

func TestRunStopsIfItsRowCannotBeRemoved(t *testing.T) {
	t.Parallel()

	db := dbtest.New(t)
	h := newHeart(t, db, "one")
	messages := recordLog(h)
	stop := run(t, h)
	pgtest.WaitFor(t, "the first beat", func(context.Context) (bool, error) { return h.Alive(), nil })
	db.Exec("ALTER TABLE sexton.clients RENAME TO hidden")
	stop()
	logged := messages.Messages()
	require.Equal(t, "client_row_not_removed", logged[len(logged)-1])
	// A heartbeat or a reclaim may have failed during the stop. No other message is
	// allowed.
	require.Subset(t, []string{"heartbeat_failed"}, logged[:len(logged)-1])
	require.LessOrEqual(t, len(logged), 2)
}

// If River's fetch commits but its response is lost, a job is marked as running although
// no goroutine works on it.
func TestJobsThatNoGoroutineWorksOnAreGivenBack(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	h := newHeart(t, db, "self")
	h.Interval = 5 * time.Millisecond
	log := recordLog(h)
	worked := insert(t, db, job{clients: []string{"self"}, seconds: 60, attempt: 1})
	lost := insert(t, db, job{clients: []string{"self"}, seconds: 60, attempt: 1})
	young := insert(t, db, job{clients: []string{"self"}, attempt: 1})
	other := insert(t, db, job{clients: []string{"self", "other"}, seconds: 60, attempt: 1})
	insertClient(db, "other", 0)
	state := func(id int64) string {
		return pgtest.Scalar[string](t, db.Database,
			"SELECT state::text || ' ' || attempt FROM sexton.river_job WHERE id = $1", id)
	}
	waitUntilGivenBack := func(id int64) {
		pgtest.WaitFor(t, "the job to be given back", func(context.Context) (bool,
			error,
		) {
			return state(id) == "available 0", nil
		})
	}
	done := h.TrackJob(worked)
	stop := run(t, h)
	waitUntilGivenBack(lost)
	require.Equal(t, "running 1", state(worked))
	// The next check marks the job as idle, and the check after that gives it back.
	done()
	waitUntilGivenBack(worked)
	require.Equal(t, "running 1", state(young), "its goroutine may not have started yet")
	require.Equal(t, "running 1", state(other), "another client works on the job")
	require.Contains(t, log.Messages(), "job_reclaimed")
	stop()
}

func TestAJobIsLostAfterTwoChecks(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	h := newHeart(t, db, "self")
	insert(t, db, job{clients: []string{"self"}, seconds: 60, attempt: 1})
	for _, want := range []string{"running", "available"} {
		require.NoError(t, h.GiveBackLost(t.Context()))
		require.Equal(t, [][]string{{want}}, db.Rows("SELECT state FROM sexton.river_job"))
	}
}

// The README promises that the work of a killed worker continues within 20 s. The worst
// case has three parts: a last heartbeat just before the worker's end, one interval until
// the next search for dead workers, and one interval until the queues are read if the
// notification is lost.
func TestTimeToReclaimMatchesTheDocumentation(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, heartbeat.DefaultSilence+2*heartbeat.ReclaimInterval, 20*time.Second)
}
