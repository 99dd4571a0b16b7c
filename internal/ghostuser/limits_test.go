package ghostuser_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/ghostuser"
	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

func TestRunLimitsUsers(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.queue(false, 1, 2, 3)
	b.Exec("UPDATE users_ghost_user_migrations SET consume_after = now() - make_interval(mins => user_id::int)")
	b.engine.Limits.Users = 2
	stats := b.run(t)
	require.EqualValues(t, 2, stats.UsersProcessed)
	require.True(t, stats.OverLimit)
	require.Zero(t, stats.UsersUnfinished)
	require.Equal(t, [][]string{{"1", "0", "f", ""}}, b.queued(), "the user that was due last is unchanged")
	stats = b.run(t)
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.False(t, stats.OverLimit)
}

// The runtime and the context are checked between batches. An unfinished user keeps its
// changed rows and moves to the end of the queue.
func TestUnfinishedUserMovesToTheEnd(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"time", "stop"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			b := setup(t, contributions, lists())
			b.queue(false, 1)
			b.queue(false, 2)
			b.Exec("UPDATE users_ghost_user_migrations SET consume_after = now() - interval '1 day' WHERE user_id = 1")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			b.engine.Limits.Runtime = 2 * time.Second
			b.engine.Progress = func(context.Context, *ghostuser.Stats) {
				if reason == "stop" {
					cancel()
				} else {
					// The run began before its first batch, so its runtime has passed
					// after this wait.
					<-time.After(b.engine.Limits.Runtime)
				}
			}
			stats := pgtest.Must(b.engine.Run(ctx))(t)
			require.Equal(t, map[string]int64{"posts.author_id": 50}, stats.Moved, "one batch")
			require.EqualValues(t, 1, stats.UsersUnfinished)
			require.Equal(t, reason == "time", stats.OverLimit)
			require.Equal(t, reason == "stop", stats.Interrupted)
			require.Equal(t, [][]string{{"2", "0"}, {"1", "50"}},
				b.Rows("SELECT user_id, moved_rows FROM users_ghost_user_migrations ORDER BY consume_after, id"))
			require.Equal(t, [][]string{{"1", "0", "f", ""}, {"2", "0", "f", ""}}, b.queued(),
				"both users are due and have no attempts")

			b.engine.Progress = nil
			b.engine.Limits.Runtime = time.Minute
			b.requireDone(t, b.run(t), 2)
		})
	}
}

// If an operator defers a user during a run, the user is still deferred after the run.
// This is true for a user that failed and for a user that the run did not finish.
func TestUserDeferredDuringARunStaysDeferred(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]int{"unfinished": 0, "failed": 1}, func(t *testing.T, outcome string, attempts int) {
		b := setup(t, contributions, lists())
		b.queue(false, 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		b.engine.Progress = func(context.Context, *ghostuser.Stats) {
			b.Exec("UPDATE users_ghost_user_migrations SET consume_after = 'infinity'")
			if outcome == "unfinished" {
				stop()
			} else {
				b.Exec("ALTER TABLE posts ADD CONSTRAINT kept CHECK (author_id <> 9) NOT VALID")
				b.engine.Progress = nil
			}
		}
		stats := pgtest.Must(b.engine.Run(ctx))(t)
		require.EqualValues(t, 1, stats.UsersUnfinished+stats.UsersFailed)
		require.Equal(t, [][]string{{"infinity", fmt.Sprint(attempts)}},
			b.Rows("SELECT consume_after, attempts FROM users_ghost_user_migrations"))
	})
}

func TestProgressEstimatesRemainingRows(t *testing.T) {
	t.Parallel()
	b := setup(t,
		"INSERT INTO posts SELECT n, 1 FROM generate_series(1, 40000) AS n; INSERT INTO visits SELECT n, 1 FROM generate_series(1, 20) AS n", lists())
	b.queue(false, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.engine.Progress = func(_ context.Context, stats *ghostuser.Stats) {
		if stats.Current != nil && stats.Current.Remaining != nil {
			cancel()
		}
	}
	require.Nil(t, pgtest.Must(b.engine.Run(ctx))(t).Current)
	waiting := pgtest.Must(ghostuser.ReadWaiting(t.Context(), b.Pool(), dbtest.Names(), 10))(t)
	require.Len(t, waiting, 1)
	require.EqualValues(t, 1, waiting[0].UserID.Number())
	require.Positive(t, waiting[0].Moved)
	require.NotNil(t, waiting[0].Remaining)
	require.EqualValues(t, 10_000, *waiting[0].Remaining, "the estimate is capped")
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t, "", lists())
	read := func() []string {
		return b.Rows("SELECT pending, deferred, round(oldest_age_seconds / 3600), CASE WHEN isfinite(deferred_until) THEN " +
			"round(extract(epoch FROM deferred_until - now()) / 60) END, deferred_reason FROM sexton.backlog_of_ghost_users()")[0]
	}
	due := func() []string {
		return b.Rows("SELECT " + dbtest.Names().Render(ghostuser.DueSQL()) + ", round(" +
			dbtest.Names().Render(ghostuser.NextDueSQL()) + " / 60)")[0]
	}
	require.Equal(t, []string{"0", "0", "0", "NULL", "NULL"}, read())
	require.Equal(t, []string{"f", "0"}, due())
	b.queue(false, 1, 2, 3)
	b.Exec(`UPDATE users_ghost_user_migrations SET created_at = now() - interval '1 hour' WHERE user_id = 1;
		UPDATE users_ghost_user_migrations SET consume_after = now() + interval '30 min', last_error = 'todos: used' WHERE user_id = 2`)
	require.Equal(t, []string{"3", "1", "1", "30", "todos: used"}, read())
	backlog := pgtest.Must(ghostuser.ReadBacklog(t.Context(), b.Pool(), dbtest.Names()))(t)
	require.InDelta(t, time.Hour.Seconds(), backlog.OldestAgeSeconds, 60)
	backlog.OldestAgeSeconds = 0
	require.Equal(t, ghostuser.Backlog{Pending: 3, Deferred: 1}, backlog)
	require.Equal(t, []string{"t", "30"}, due())
	b.run(t)
	require.Equal(t, []string{"f", "30"}, due(), "deferred users are not due")

	// An operator defers the user to infinity.
	b.Exec("UPDATE users_ghost_user_migrations SET consume_after = 'infinity'")
	require.Equal(t, []string{"f", "0"}, due(), "deferred to infinity")
	require.Zero(t, b.run(t).UsersProcessed)
	waiting := pgtest.Must(ghostuser.ReadWaiting(t.Context(), b.Pool(), dbtest.Names(), 10))(t)
	require.Equal(t, pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}, waiting[0].ConsumeAfter)
	require.Equal(t, []string{"1", "NULL"}, []string{read()[1], read()[3]}, "infinity has no finite time")
}

// overload makes each statement that changes more than 40 posts exceed the statement
// timeout.
const overload = `
CREATE TABLE statements (number bigint GENERATED ALWAYS AS IDENTITY, affected bigint);
CREATE FUNCTION overload() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	affected bigint := (SELECT count(*) FROM changed);
BEGIN
	IF affected > 40 THEN
		PERFORM pg_sleep(600);
	END IF;
	INSERT INTO public.statements (affected) VALUES (affected);
	RETURN NULL;
END $$;
CREATE TRIGGER overload AFTER UPDATE ON posts REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION overload();`

// With a target, statements get larger while they are fast, and smaller after a timeout.
func TestSizesFollowTheTarget(t *testing.T) {
	t.Parallel()
	b := setup(t, overload+`
		INSERT INTO posts SELECT n, 1 FROM generate_series(1, 100) AS n;
		INSERT INTO visits SELECT n, 1 FROM generate_series(1, 10000) AS n;`, lists())
	b.engine.Sizes = ghostuser.Sizes{Target: 100 * time.Millisecond}
	b.engine.Session.Limits.StatementTimeout = 500 * time.Millisecond
	b.queue(false, 1)
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.EqualValues(t, 100, stats.Moved["posts.author_id"])
	require.LessOrEqual(t, pgtest.Scalar[int64](t, b.Database, "SELECT max(affected) FROM statements"), int64(40))
	require.Less(t, stats.Batches, int64(40), "batches of visits grow")
}

func TestRunWaitsWhileHeld(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.queue(false, 1)
	calls, reasons := 0, []string{}
	b.engine.Throttle.Hold = func(context.Context) string {
		if calls++; calls == 1 {
			return "a replica is behind"
		}
		return ""
	}
	b.engine.Progress = func(_ context.Context, stats *ghostuser.Stats) {
		if stats.Batches == 0 {
			reasons = append(reasons, stats.WaitingFor)
		}
	}
	b.requireDone(t, b.run(t), 1)
	require.Equal(t, []string{"a replica is behind", ""}, reasons)
}

func TestDutyIsReportedAfterBatches(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.engine.Sizes = ghostuser.Sizes{Target: 20 * time.Millisecond}
	b.queue(false, 1)
	duty := pace.Duty{Percent: 99, Why: "others"}
	b.engine.Throttle.Share = func(context.Context, bool) (float64, pace.Duty) { return 0.99, duty }
	seen := map[pace.Duty]bool{}
	b.engine.Progress = func(_ context.Context, stats *ghostuser.Stats) { seen[stats.Duty] = true }
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.True(t, seen[duty], "%v", seen)
	require.Zero(t, stats.Duty, "a run that has ended has no duty")
}

// Deletions by the engine create tombstones in tracked tables.
func TestDeletionsFeedLooseForeignKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.Track(t, "users", "visits")
	b.queue(false, 1)
	b.requireDone(t, b.run(t), 1)
	require.Equal(t, [][]string{{"public.users", "1"}, {"public.visits", "1500"}}, b.Rows(
		"SELECT fully_qualified_table_name, count(*) FROM loose_foreign_keys_deleted_records GROUP BY 1 ORDER BY 1"))
}

// A run that waits for a lock reports the session that holds it. No attempt is counted
// for the user.
func TestReasonNamesTheLockHolder(t *testing.T) {
	t.Parallel()
	type example struct{ statement, table string }
	pgtest.Each(t, map[string]example{
		"a row of the user": {"SELECT FROM posts WHERE id = 2 FOR UPDATE", "posts: row"},
		"a whole table":     {"LOCK TABLE likes", "table likes"},
		"the user":          {"SELECT FROM users WHERE id = 1 FOR KEY SHARE", "users: row"},
	}, func(t *testing.T, _ string, lock example) {
		b := setup(t, contributions, lists())
		// The run queries the lock holder after 200 ms. The remaining 500 ms of the lock
		// timeout leave time for this query.
		b.engine.Session.Limits.LockTimeout = 700 * time.Millisecond
		b.reportBlockers()
		b.queue(false, 1)
		tx := b.Begin(t, lock.statement)
		pid := tx.Conn().PgConn().PID()
		reason := regexp.MustCompile(fmt.Sprintf(`^%s locked by pid %d\b`, lock.table, pid))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		b.engine.Progress = func(_ context.Context, stats *ghostuser.Stats) {
			if reason.MatchString(stats.WaitingFor) {
				stop()
			}
		}
		stats := pgtest.Must(b.engine.Run(ctx))(t)
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, [][]string{{"1", "0", "f", ""}}, b.queued())
		require.Empty(t, stats.Errors)
		require.True(t, stats.Interrupted, "the runtime ended before the run reported the lock")
		require.Regexp(t, reason, stats.Held)
		b.requireDone(t, b.run(t), 1)
	})
}

// A run reports no reason to wait while it changes rows of one user, even if another user
// waits for a lock.
func TestWorkingRunReportsNoWait(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.engine.Session.Limits.LockTimeout = 100 * time.Millisecond
	b.queue(false, 1, 2)
	locks := []pgx.Tx{
		b.Begin(t, "SELECT FROM users WHERE id = 1 FOR KEY SHARE"),
		b.Begin(t, "SELECT FROM users WHERE id = 2 FOR KEY SHARE"),
	}
	var reasons []string
	batches := int64(0)
	b.engine.Progress = func(ctx context.Context, stats *ghostuser.Stats) {
		freed := len(locks) < 2
		if freed && stats.Batches > batches {
			reasons = append(reasons, stats.WaitingFor)
		}
		if len(locks) > 0 && (stats.WaitingFor != "" && !freed || len(reasons) > 0) {
			require.NoError(t, locks[0].Commit(ctx))
			locks = locks[1:]
		}
		batches = stats.Batches
	}
	b.requireDone(t, b.run(t), 2)
	require.NotEmpty(t, reasons)
	require.Empty(t, strings.Join(reasons, ""))
}

// After the locks on a user's rows were released and rows of the user were changed, the
// statistics name no lock.
func TestReleasedLockIsNotReported(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.engine.Sizes.Delete = 100
	b.engine.Session.Limits.LockTimeout = 100 * time.Millisecond
	b.queue(false, 1)
	lock := b.Begin(t, "SELECT FROM visits WHERE user_id = 1 FOR UPDATE")
	ctx, stop := context.WithCancel(t.Context())
	batches := int64(-1)
	b.engine.Progress = func(ctx context.Context, stats *ghostuser.Stats) {
		switch {
		case batches < 0 && stats.WaitingFor != "":
			require.NoError(t, lock.Rollback(ctx))
			batches = stats.Batches
		case batches >= 0 && stats.Batches > batches:
			stop()
		}
	}
	stats := pgtest.Must(b.engine.Run(ctx))(t)
	require.EqualValues(t, 1, stats.UsersUnfinished)
	require.Empty(t, stats.Held)
	require.NotEmpty(t, b.Rows("SELECT FROM visits WHERE user_id = 1"), "the run ended before the user was done")
}

// A locked row in the queue delays only its own user.
func TestLockInTheQueueDelaysOnlyItsUser(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.engine.Session.Limits.LockTimeout = 300 * time.Millisecond
	b.engine.Limits.Runtime = 3 * time.Second
	b.queue(false, 1, 2)
	queued := b.Begin(t, "SELECT FROM users_ghost_user_migrations WHERE user_id = 1 FOR UPDATE")
	stats := b.run(t)
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.Zero(t, stats.UsersFailed)
	require.NoError(t, queued.Commit(t.Context()))
	require.Equal(t, [][]string{{"1", "0", "f", ""}}, b.queued(), "the user is still due")
	b.requireDone(t, b.run(t), 1)
}

// A locked row in the queue does not fail the run if the user of the row does not exist,
// or if the row is locked when the run ends.
func TestLockInTheQueueFailsNoRun(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.engine.Session.Limits.LockTimeout = 300 * time.Millisecond
	b.Exec("ALTER TABLE users_ghost_user_migrations DROP CONSTRAINT users_ghost_user_migrations_user_id_fkey; INSERT INTO users_ghost_user_migrations (user_id) VALUES (404)")
	b.queue(false, 1, 2)
	queued := b.Begin(t, "SELECT FROM users_ghost_user_migrations WHERE user_id = 404 FOR UPDATE")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last pgx.Tx
	b.doOnce(func(stats *ghostuser.Stats) bool { return stats.UsersProcessed == 1 }, func() {
		last = b.Begin(t, "SELECT FROM users_ghost_user_migrations FOR UPDATE SKIP LOCKED")
		cancel()
	})
	stats := pgtest.Must(b.engine.Run(ctx))(t)
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.True(t, stats.Interrupted)
	require.NoError(t, last.Commit(t.Context()))

	// The run deletes the other user. Only the user in the locked row is left.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	b.engine.Progress = func(_ context.Context, stats *ghostuser.Stats) {
		if stats.UsersProcessed == 1 && strings.Contains(stats.WaitingFor, "lock timeout") {
			stop()
		}
	}
	stats = pgtest.Must(b.engine.Run(ctx))(t)
	require.True(t, stats.Interrupted, "the runtime ended before the run waited for the locked row")
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.Zero(t, stats.UsersFailed)
	require.NoError(t, queued.Commit(t.Context()))
	require.EqualValues(t, 1, b.run(t).UsersDropped)
	require.Empty(t, b.queued())
}
