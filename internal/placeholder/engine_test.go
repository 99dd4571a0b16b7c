package placeholder_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
	"sexton/internal/placeholder"
)

func TestRunOffersOwnerlessPlaceholders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1, 2, 3, 4)
	b.Exec("UPDATE import_placeholder_user_details SET namespace_id = 1 WHERE id = 2")
	stats := b.run(t)
	require.Equal(t, [][]string{{"1", "0"}, {"3", "1"}, {"4", "2"}}, b.jobs(),
		"one second apart, without the owned placeholder")
	require.Equal(t, [][]string{{"1", "1", "t"}, {"3", "1", "t"}, {"4", "1", "t"}}, b.attempts())
	last := start().Add(2 * time.Second)
	require.Equal(t, &placeholder.Stats{Scheduled: 3, LastScheduledAt: &last, Errors: []batch.FaultCounts{}}, stats)
	require.Equal(t, placeholder.Item{UserID: 3, Attempt: 1, ScheduledAt: start().Add(time.Second)}, b.items[1])
	require.Equal(t, [][]string{{"scheduled", "25", "import_delete_placeholder_user"}},
		b.Rows("SELECT DISTINCT state, max_attempts, queue FROM sexton.river_job"))

	before := b.Rows("SELECT * FROM import_placeholder_user_details ORDER BY id")
	require.Equal(t, &placeholder.Stats{Errors: []batch.FaultCounts{}}, b.run(t), "the second run finds nothing")
	require.Equal(t, before, b.Rows("SELECT * FROM import_placeholder_user_details ORDER BY id"))
	require.Len(t, b.jobs(), 3)
}

// isEligible reports whether a row is due after the given time of its last attempt and
// the given number of attempts. The time is an SQL expression.
func (b *bundle) isEligible(t *testing.T, last string, attempts int) bool {
	// Within one statement of the client statement_timestamp() is constant, so the
	// function can test a boundary exactly.
	b.Exec(`CREATE OR REPLACE FUNCTION boundary(attempts int) RETURNS boolean LANGUAGE plpgsql AS $$
		DECLARE
			due boolean;
		BEGIN
			UPDATE import_placeholder_user_details SET deletion_attempts = attempts, last_deletion_attempt_at = ` + last + `;
			EXECUTE $due$SELECT ` + b.Connected.Names.Render(placeholder.DueSQL()) + `$due$ INTO due USING 15, 172800.0::float8;
			RETURN due;
		END $$`)
	return pgtest.Scalar[bool](t, b.Database, "SELECT boundary($1)", attempts)
}

func TestEligibility(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1)
	for _, test := range []struct {
		last     string
		attempts int
		want     bool
	}{
		{"NULL", 0, true},
		{"NULL", 14, true},
		{"NULL", 15, false},
		{"NULL", 16, false},
		{"statement_timestamp()", 1, false},
		{"statement_timestamp() - interval '48 hours' + interval '1 microsecond'", 1, false},
		{"statement_timestamp() - interval '48 hours'", 1, false},
		{"statement_timestamp() - interval '48 hours' - interval '1 microsecond'", 1, true},
		{"statement_timestamp() - interval '49 hours'", 14, true},
		{"statement_timestamp() - interval '49 hours'", 15, false},
		{"statement_timestamp() - interval '49 hours'", 0, true},
		{"'infinity'", 1, false},
	} {
		b.Exec("TRUNCATE sexton.river_job")
		require.Equal(t, test.want, b.isEligible(t, test.last, test.attempts), "%s, %d attempts", test.last,
			test.attempts)
		if test.last != "statement_timestamp() - interval '48 hours' + interval '1 microsecond'" &&
			test.last != "statement_timestamp() - interval '48 hours'" {
			require.Equal(t, test.want, b.run(t).Scheduled == 1, "run: %s, %d attempts", test.last,
				test.attempts)
		}
	}
	b.Exec("TRUNCATE sexton.river_job; UPDATE import_placeholder_user_details SET namespace_id = 1")
	require.False(t, b.isEligible(t, "NULL", 0), "with an owner")
	require.Zero(t, b.run(t).Scheduled)
}

func TestLastAttemptIsFinal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1, 2, 3)
	b.Exec("UPDATE import_placeholder_user_details SET deletion_attempts = 12 + id, last_deletion_attempt_at = now() - interval '3 days'")
	stats := b.run(t)
	require.EqualValues(t, 2, stats.Scheduled)
	require.EqualValues(t, 1, stats.FinalAttempts)
	require.Equal(t, [][]string{{"1", "0"}, {"2", "1"}}, b.jobs(), "the 15th attempt is made, there is no 16th")
	require.Equal(t, []placeholder.Item{
		{UserID: 1, Attempt: 14, ScheduledAt: start()},
		{UserID: 2, Attempt: 15, Final: true, ScheduledAt: start().Add(time.Second)},
	}, b.items)
	b.Exec("UPDATE import_placeholder_user_details SET last_deletion_attempt_at = now() - interval '3 days'; UPDATE sexton.river_job SET state = 'completed', finalized_at = now()")
	require.EqualValues(t, 1, b.run(t).Scheduled, "only placeholder 1 has an attempt left")
}

// The times of jobs continue over several queries of rows, and a skipped row leaves no
// gap.
func TestSpacingOverSeveralQueries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec("INSERT INTO users (id, username, email, name, user_type) SELECT n, 'p' || n, n || '@x', 'p', 15 FROM generate_series(1, 2500) AS n")
	b.Exec("INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id) SELECT n, n, 1 FROM generate_series(1, 2500) AS n")
	b.Exec("SELECT sexton.enqueue('import_delete_placeholder_user', '{\"user_id\": 700}', '2098-01-01Z')")
	stats := b.run(t)
	require.EqualValues(t, 2499, stats.Scheduled)
	require.EqualValues(t, 1, stats.Waiting)
	require.Equal(t, [][]string{{"2499", "2499", "0", "2498", "t"}}, b.Rows(`
		SELECT count(*), count(DISTINCT scheduled_at), min(second), max(second), bool_and(user_id = second + 1 + (user_id > 700)::int)
		FROM (
			SELECT scheduled_at, (args ->> 'user_id')::int AS user_id, extract(epoch FROM scheduled_at - $1)::int AS second
			FROM sexton.river_job WHERE scheduled_at >= $1
		) AS job`, start()))
	require.Equal(t, [][]string{{"0"}},
		b.Rows("SELECT deletion_attempts FROM import_placeholder_user_details WHERE id = 700"))
}

// An attempt is counted only if a new job is inserted.
func TestAttemptNeedsANewJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1, 2, 3)
	// User 1 has two rows, user 2 is in the queue, and the job of user 3 is being
	// retried.
	b.Exec("INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id) VALUES (9, 1, 1)")
	b.Exec("SELECT sexton.delete_user(2, 2)")
	b.Exec("SELECT sexton.enqueue('import_delete_placeholder_user', '{\"user_id\": 3}')")
	b.Exec("UPDATE sexton.river_job SET state = 'retryable', scheduled_at = '2098-01-01Z'")
	due := func() bool {
		return pgtest.Scalar[bool](t, b.Database, "SELECT "+b.Connected.Names.Render(placeholder.DueSQL()), 15,
			172800.0)
	}
	require.True(t, due())
	stats := b.run(t)
	require.Equal(t, [][]string{{"1", "1", "t"}}, b.attempts())
	require.EqualValues(t, 2, stats.Waiting, "the second row of user 1, and user 3")
	require.Equal(t, [][]string{{"3", "-31536000"}, {"1", "0"}}, b.jobs(), "the existing job keeps its time")
	require.False(t, due(), "nothing is due, or a worker would start runs forever")

	b.Exec("UPDATE sexton.river_job SET state = 'completed', finalized_at = now()")
	require.True(t, due())
	b.run(t)
	require.Equal(t, [][]string{{"1", "1", "t"}, {"3", "1", "t"}, {"9", "1", "t"}}, b.attempts(),
		"two rows of one user never have two jobs at a time")
	b.Exec("DELETE FROM users_ghost_user_migrations")
	b.run(t)
	require.Contains(t, b.attempts(), []string{"2", "1", "t"}, "user 2 was removed from the queue and not deleted")
}

func TestNextDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	next := func() float64 {
		return pgtest.Scalar[float64](t, b.Database, "SELECT "+b.Connected.Names.Render(placeholder.NextDueSQL()), 15,
			172800.0)
	}
	require.Zero(t, next())
	b.placeholders(1, 2, 3, 4, 5)
	require.Zero(t, next(), "due rows need no timer")
	b.Exec(`UPDATE import_placeholder_user_details SET deletion_attempts = v.attempts, last_deletion_attempt_at = now() - v.ago
		FROM (VALUES (1, 3, interval '47 hours'), (2, 14, interval '46 hours'), (3, 15, interval '47.5 hours'), (4, 2, interval '3 days')) AS v (id, attempts, ago)
		WHERE v.id = import_placeholder_user_details.id`)
	require.InDelta(t, 3600, next(), 60, "placeholders with 15 attempts and due placeholders do not count")
	b.Exec("UPDATE import_placeholder_user_details SET namespace_id = 1 WHERE id = 1")
	require.InDelta(t, 7200, next(), 60)
	b.Exec("UPDATE import_placeholder_user_details SET last_deletion_attempt_at = 'infinity'")
	require.Zero(t, next(), "deferred forever")
}

// An error in one row counts no attempt, and the run continues with the other rows.
func TestErrorOfOneRow(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"update of the row":    "BEFORE UPDATE ON import_placeholder_user_details FOR EACH ROW WHEN (OLD.id = 2)",
		"insertion of the job": `BEFORE INSERT ON sexton.river_job FOR EACH ROW WHEN (NEW.args @> '{"user_id": 2}')`,
	}, func(t *testing.T, _, event string) {
		b := setup(t)
		b.placeholders(1, 2, 3)
		b.Exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept' USING ERRCODE = '57P01'; END $$")
		b.Exec("CREATE TRIGGER refuse " + event + " EXECUTE FUNCTION refuse()")
		stats := b.run(t)
		require.EqualValues(t, 1, stats.Failed)
		require.Equal(t, []batch.FaultCounts{{
			Table: "import_placeholder_user_details", SQLState: "57P01",
			Message: "kept", Count: 1,
		}}, stats.Errors)
		require.Equal(t, [][]string{{"1", "0"}, {"3", "1"}}, b.jobs())
		require.Equal(t, [][]string{{"1", "1", "t"}, {"3", "1", "t"}}, b.attempts())
		b.Exec("DROP FUNCTION refuse CASCADE")
		require.EqualValues(t, 1, b.run(t).Scheduled)
		require.Equal(t, [][]string{{"1", "1", "t"}, {"2", "1", "t"}, {"3", "1", "t"}}, b.attempts())
	})
}

func TestErrorsThatEndTheRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1, 2)
	b.Exec("ALTER FUNCTION sexton.enqueue_new(text, jsonb, timestamptz) RENAME TO away")
	stats, err := b.engine.Run(t.Context())
	require.ErrorContains(t, err, "offer placeholder user 1: ")
	require.Zero(t, stats.Failed)

	b.Exec("ALTER FUNCTION sexton.away(text, jsonb, timestamptz) RENAME TO enqueue_new")
	b.Exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept'; END $$")
	b.Exec("CREATE TRIGGER refuse BEFORE INSERT ON sexton.river_job FOR EACH ROW EXECUTE FUNCTION refuse()")
	b.Exec("INSERT INTO users (id, username, email, name, user_type) SELECT n, 'p' || n, n || '@x', 'p', 15 FROM generate_series(3, 300) AS n")
	b.Exec("INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id) SELECT n, n, 1 FROM generate_series(3, 300) AS n")
	stats, err = b.engine.Run(t.Context())
	require.ErrorContains(t, err, "offer placeholder user 101: ", "after 100 failed rows")
	require.EqualValues(t, 100, stats.Failed)
	require.Empty(t, b.attempts())
}

// A run that has lost its lease commits neither a job nor an attempt.
func TestLostLeaseCommitsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1, 2, 3)
	b.engine.Offered = func(context.Context, placeholder.Item) {
		b.Exec("UPDATE sexton.fences SET token = token + 1 WHERE key = $1", leaseKey)
	}
	stats, err := b.engine.Run(t.Context())
	require.ErrorIs(t, err, lease.ErrLost)
	require.EqualValues(t, 1, stats.Scheduled)
	require.Equal(t, [][]string{{"1", "1", "t"}}, b.attempts())
	require.Equal(t, [][]string{{"1", "0"}}, b.jobs())
}

func TestRunEndsAfterItsRuntime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.placeholders(1, 2, 3)
	b.engine.Runtime = time.Nanosecond
	stats := b.run(t)
	require.True(t, stats.OverLimit)
	require.Zero(t, stats.Scheduled)

	b.engine.Runtime = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	b.engine.Offered = func(context.Context, placeholder.Item) { cancel() }
	stats = pgtest.Must(b.engine.Run(ctx))(t)
	require.True(t, stats.Interrupted)
	require.False(t, stats.OverLimit)
	require.EqualValues(t, 1, stats.Scheduled, "the current row is finished")
	require.Len(t, b.jobs(), 1)
}

// A run that is killed before or after any statement has committed both the job and the
// attempt of a row, or neither.
func TestRunKilledAnywhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp()")
	kills := b.KillAnywhere(t, 3, func(v *dbtest.Victim) {
		b.Exec("TRUNCATE sexton.river_job; DELETE FROM users")
		b.placeholders(1, 2, 3)
		session, end := b.Session(t, leaseKey)
		b.engine.Session = &batch.Session{
			Conn: v.Connect(t), Names: session.Names, Fence: session.Fence,
			Limits: session.Limits,
		}
		_, err := b.engine.Run(t.Context())
		if !v.Killed() {
			require.NoError(t, err)
		}
		end()
		b.requireConsistency(t)

		b.engine.Session, end = b.Session(t, leaseKey)
		b.run(t)
		end()
		require.Equal(t, [][]string{{"1"}, {"2"}, {"3"}},
			b.Rows("SELECT args ->> 'user_id' FROM sexton.river_job ORDER BY 1"))
		b.requireConsistency(t)
	})
	require.Greater(t, kills, 5)
}

// requireConsistency requires that each user has as many jobs as attempts.
func (b *bundle) requireConsistency(t *testing.T) {
	require.Empty(t, b.Rows(`SELECT detail.id FROM import_placeholder_user_details AS detail
		WHERE detail.deletion_attempts <> (SELECT count(*) FROM sexton.river_job WHERE args @> jsonb_build_object('user_id', detail.placeholder_user_id))`))
}

// Two runs in parallel offer each row once, although the first one continues after it has
// lost its lease. A row that gets an owner during the runs is skipped.
func TestTwoRunsInParallel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []int64
	for id := int64(1); id <= 60; id++ {
		ids = append(ids, id)
	}
	b.placeholders(ids...)
	first := b.engine
	entered, release := make(chan struct{}), make(chan struct{})
	first.Offered = func(_ context.Context, item placeholder.Item) {
		if item.UserID == 10 {
			close(entered)
			<-release
		}
	}
	wait := dbtest.InBackground(func() (*placeholder.Stats, error) { return first.Run(t.Context()) })
	<-entered
	b.Exec("UPDATE sexton.leases SET expires_at = clock_timestamp()")
	second := b.newEngine(t)
	second.Offered = func(_ context.Context, item placeholder.Item) {
		if item.UserID == 20 {
			b.Exec("UPDATE import_placeholder_user_details SET namespace_id = 1 WHERE id = 30")
			close(release)
		}
	}
	stats := pgtest.Must(second.Run(t.Context()))(t)
	_, err := wait()
	require.ErrorIs(t, err, lease.ErrLost)
	require.EqualValues(t, 49, stats.Scheduled)
	require.EqualValues(t, 1, stats.Changed, "the placeholder that has an owner again")
	b.requireConsistency(t)
	users := []string{}
	for _, job := range b.jobs() {
		users = append(users, job[0])
	}
	slices.Sort(users)
	want := []string{}
	for _, id := range ids {
		if id != 30 {
			want = append(want, strconv.FormatInt(id, 10))
		}
	}
	slices.Sort(want)
	require.Equal(t, want, users)
}

// Rows whose jobs are waiting, for example because the kind of job is paused, are not
// locked and do not delay the rows after them.
func TestWaitingJobsDelayNoOtherRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec("INSERT INTO users (id, username, email, name, user_type) SELECT n, 'p' || n, n || '@x', 'p', 15 FROM generate_series(1, 1501) AS n")
	b.Exec(`INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id, deletion_attempts, last_deletion_attempt_at)
		SELECT n, n, 1, 1, now() - interval '3 days' FROM generate_series(1, 1501) AS n`)
	b.Exec("SELECT sexton.enqueue_new('import_delete_placeholder_user', jsonb_build_object('user_id', n), '2098-01-01Z') FROM generate_series(1, 1500) AS n")
	stats := b.run(t)
	require.EqualValues(t, 1500, stats.Waiting)
	require.EqualValues(t, 1, stats.Scheduled)
	require.Equal(t, [][]string{{"1501", "2", "t"}}, b.Rows(`
		SELECT id, deletion_attempts, last_deletion_attempt_at > now() - interval '1 minute'
		FROM import_placeholder_user_details WHERE deletion_attempts > 1`))
	require.Equal(t, [][]string{{"0"}},
		b.Rows("SELECT count(*) FROM import_placeholder_user_details WHERE id <= 1500 AND xmax::text <> '0'"),
		"no row was locked")
}

// DueSQL and NextDueSQL use the index of ownerless rows, although most rows have an
// owner.
func TestDueQueriesUseTheIndex(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec("INSERT INTO users (id, username, email, name, user_type) SELECT n, 'p' || n, n || '@x', 'p', 15 FROM generate_series(1, 3000) AS n")
	b.Exec(`INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id, namespace_id, deletion_attempts, last_deletion_attempt_at)
		SELECT n, n, 1, CASE WHEN n % 10 > 0 THEN 1 END, n % 3, CASE WHEN n % 3 > 0 THEN now() END FROM generate_series(1, 3000) AS n`)
	b.Exec("ANALYZE import_placeholder_user_details")
	for name, sql := range map[string]string{"due": placeholder.DueSQL(), "next": placeholder.NextDueSQL()} {
		rows := pgtest.Must(b.Pool().Query(t.Context(), "EXPLAIN SELECT "+b.Connected.Names.Render(sql), 15,
			172800.0))(t)
		plan := pgtest.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
		require.NotContains(t, strings.Join(plan, "\n"), "Seq Scan on import_placeholder_user_details", name)
	}
}
