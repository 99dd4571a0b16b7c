package riverjobs

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgtest"
)

// Every role that may connect may notify. A forged notification does not pause a queue,
// cancel a job or replace the leader.
func TestForgedNotificationsChangeNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stranger := pgtest.Connect(t, b.db.AsRole(b.db.CreateRole()))
	owner := pgtest.Connect(t, b.db.URL)
	forge := func(id int64) {
		pgtest.Exec(t, stranger, `SELECT pg_notify('sexton.river_control', '{"action":"pause","queue":"*"}'),
			pg_notify('sexton.river_control', json_build_object('action', 'cancel', 'queue', $1::text, 'job_id', $2::bigint)::text),
			pg_notify('sexton.river_leadership', '{"action":"request_resign"}')`, LooseForeignKeys, id)
	}
	client, _ := b.start(t)
	pgtest.WaitFor(t, "a leader", func(context.Context) (bool, error) {
		return len(b.db.Rows("SELECT FROM sexton.river_leader")) == 1, nil
	})
	leader := b.db.Rows("SELECT leader_id, elected_at FROM sexton.river_leader")

	const rounds = 10
	for round := range rounds {
		blocker := pgtest.Begin(t, owner, "LOCK TABLE sexton.leases")
		forge(int64(round))
		id := pgtest.Must(client.Insert(t.Context(), LooseForeignKeysCleanupArgs{Database: "main"}, nil))(t).Job.ID
		waitForState := func(state string) {
			pgtest.WaitFor(t, "the job to be "+state, func(context.Context) (bool, error) {
				return b.db.Rows("SELECT state FROM sexton.river_job WHERE id = $1", id)[0][0] == state, nil
			})
		}
		waitForState("running")
		forge(id)
		require.NoError(t, blocker.Rollback(t.Context()))
		waitForState("completed")
	}
	require.Equal(t, [][]string{{"done"}}, b.db.Rows("SELECT DISTINCT outcome FROM sexton.runs"))
	require.Equal(t, leader, b.db.Rows("SELECT leader_id, elected_at FROM sexton.river_leader"))
}

// River UI marks the job's row and sends a notification, as any River client does. The
// driver ignores the notification, and its next query for queues cancels the job.
func TestJobCanceledByAnotherClientStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	blocker := pgtest.Begin(t, b.db.Pool(), "SELECT FROM children FOR UPDATE")

	client, _ := b.start(t)
	inserted := pgtest.Must(client.Insert(t.Context(), LooseForeignKeysCleanupArgs{Database: "main"}, nil))(t)
	id := inserted.Job.ID
	waitForState := func(want string) {
		pgtest.WaitFor(t, "the job to be "+want, func(context.Context) (bool, error) {
			return b.db.Rows("SELECT state FROM sexton.river_job WHERE id = $1", id)[0][0] == want, nil
		})
	}
	waitForState("running")
	pgtest.WaitFor(t, "the pass to hold its lease", func(context.Context) (bool, error) {
		return len(b.db.Rows("SELECT FROM sexton.leases WHERE expires_at > now()")) == 1, nil
	})
	other := pgtest.Must(river.NewClient(riverpgxv5.New(b.db.Pool()), &river.Config{Schema: "sexton"}))(t)
	pgtest.Must(other.JobCancel(t.Context(), id))(t)
	waitForState("cancelled")
	require.Empty(t, b.db.Rows("SELECT FROM sexton.leases WHERE expires_at > now()"))
	require.Equal(t, [][]string{{"f", "t"}},
		b.db.Rows("SELECT outcome = 'running', ended_at IS NOT NULL FROM sexton.runs"))
	require.EqualValues(t, 1, b.db.Pending(t))

	require.NoError(t, blocker.Rollback(t.Context()))
	b.db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	inserted = pgtest.Must(client.Insert(t.Context(), LooseForeignKeysCleanupArgs{Database: "main"}, nil))(t)
	id = inserted.Job.ID
	waitForState("completed")
	require.Zero(t, b.db.Pending(t))
}

func newListener(t *testing.T, b bundle, queues ...string) (*driver, *listener) {
	on := &driver{
		Driver: riverpgxv5.New(b.db.Connected.Pool), jobs: b.db.Connected,
		params: dbsqlc.ProducerQueuesParams{Queues: queues}, log: slog.New(slog.NewTextHandler(b.log, nil)),
		inserted: make(chan string, 1),
	}
	riverListener, ok := on.GetListener(&riverdriver.GetListenenerParams{Schema: "sexton"}).(*listener)
	require.True(t, ok)
	require.NoError(t, riverListener.Connect(t.Context()))
	t.Cleanup(func() { require.NoError(t, riverListener.Close(context.WithoutCancel(t.Context()))) })
	return on, riverListener
}

func TestPausesAreReadFromTheQueues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	on, riverListener := newListener(t, b, "a", "b")
	b.db.Exec("INSERT INTO sexton.river_leader (leader_id, elected_at, expires_at) VALUES ('it', now(), now() + interval '1 hour')")
	next := func() string {
		n := pgtest.Must(riverListener.WaitForNotification(t.Context()))(t)
		return n.Topic + n.Payload
	}
	require.Equal(t, `river_control{"action":"resume","queue":"*"}`, next())

	b.db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ('a', now(), now())")
	both := []string{next(), next()}
	require.ElementsMatch(t, []string{
		`river_control{"action":"pause","queue":"a"}`,
		`river_control{"action":"resume","queue":"b"}`,
	}, both)

	on.receive(`{"queue":"b"}`)
	on.receive(`{"queue":"b"}`) // The queue of notifications has one place, so this notification is dropped.
	require.Equal(t, `river_insert{"queue":"b"}`, next())

	b.db.Exec("INSERT INTO sexton.river_job (kind, args, queue, max_attempts, scheduled_at) SELECT 'x', '{}', queue, 1, now() FROM unnest('{a,b,c}'::text[]) AS queue")
	require.ElementsMatch(t, append(both, `river_insert{"queue":"b"}`), []string{next(), next(), next()},
		"a job whose notification was lost")
	b.db.Exec("UPDATE sexton.river_job SET scheduled_at = now() + interval '1 hour'")

	b.db.Exec("UPDATE sexton.river_queue SET paused_at = NULL; UPDATE sexton.river_leader SET elected_at = now() - interval '2 hours', expires_at = now() - interval '1 hour'")
	both = []string{next(), next()}
	require.Equal(t, []string{
		`river_control{"action":"resume","queue":"*"}`,
		`river_leadership{"action":"resigned","leader_id":""}`,
	}, both, "without a leader")

	b.db.Exec(`UPDATE sexton.river_job SET id = 7, state = 'running', attempt = 1, attempted_at = now(), metadata = '{"cancel_attempted_at": "2026-01-01"}' WHERE queue = 'a'`)
	require.Equal(t, `river_control{"action":"cancel","queue":"a","job_id":7}`, next())
	riverListener.pending = nil
	b.db.Exec("DELETE FROM sexton.river_job")

	b.db.Exec("ALTER TABLE sexton.river_queue RENAME TO elsewhere")
	require.Empty(t, on.readQueues(t.Context()))
	require.Contains(t, b.log.String(), "queues_not_read")
	on.receive("{}")
	require.Equal(t, "river_insert{}", next(), "notifications of inserted jobs are received although the query fails")
}

// River's client may insert jobs that are not unique in the state retryable. JobSchedule
// makes one of several equal jobs available and discards the others. None of these jobs
// blocks other jobs, even if discarded jobs must be unique, too.
func TestConflictingJobDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	on := &driver{Driver: riverpgxv5.New(b.db.Connected.Pool), jobs: b.db.Connected}
	b.db.Exec(`INSERT INTO sexton.river_job (kind, args, queue, max_attempts, state, scheduled_at, unique_key, unique_states)
		SELECT 'x', '{}', queue, 5, state::sexton.river_job_state, now(), key::bytea, states
		FROM (VALUES ('kept out', 'retryable', 'k', B'11010001'), ('waits', 'available', 'k', B'11010001'),
			('kept out', 'retryable', 'l', B'11011001'), ('waits', 'available', 'l', B'11011001'),
			('first', 'retryable', 'm', B'11010001'), ('second', 'retryable', 'm', B'11010001'),
			('alone', 'retryable', 'n', B'11110001'), ('without a key', 'retryable', NULL, NULL)) AS job (queue, state, key, states)`)
	tx := pgtest.Must(on.GetExecutor().Begin(t.Context()))(t)
	moved := pgtest.Must(tx.JobSchedule(t.Context(), &riverdriver.JobScheduleParams{Max: 10, Schema: "sexton"}))(t)
	require.NoError(t, tx.Commit(t.Context()))
	discarded := 0
	for _, job := range moved {
		if job.ConflictDiscarded {
			discarded++
		}
	}
	require.Equal(t, []int{6, 3}, []int{len(moved), discarded})
	require.Equal(t, [][]string{
		{"alone", "available", "1"},
		{"first", "available", "1"},
		{"kept out", "discarded", "2"},
		{"second", "discarded", "1"},
		{"waits", "available", "2"},
		{"without a key", "available", "1"},
	}, b.db.Rows("SELECT queue, state, count(*) FROM sexton.river_job GROUP BY queue, state ORDER BY queue"))
}

// River does not document how it interprets notifications and how it uses a listener. The
// driver was written for this version of River.
func TestRiverVersionIsTheReviewedOne(t *testing.T) {
	t.Parallel()
	file := pgtest.Must(os.ReadFile("../go.mod"))(t)
	for _, module := range []string{"river", "river/riverdriver", "river/riverdriver/riverpgxv5"} {
		require.Contains(t, string(file), "\tgithub.com/riverqueue/"+module+" v0.51.0\n",
			"first compare internal/notifier, producer.go and internal/leadership of the new version with driver.go: the topics, their effects, and the polls that replace them")
	}
}
