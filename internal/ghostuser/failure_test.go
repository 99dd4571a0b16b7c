package ghostuser_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/drain/dml"
	"sexton/internal/ghostuser"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// A user whose row violates a constraint when it is moved is deferred at each attempt.
// The error names the table and the constraint. Other users are deleted.
func TestMoveViolatesAConstraint(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions+`
		ALTER TABLE posts ADD CONSTRAINT signed CHECK (author_id <> 9 OR note IS DISTINCT FROM 'signed');
		UPDATE posts SET note = 'signed' WHERE id IN (SELECT min(id) FROM posts WHERE author_id = 1);`, lists())
	b.engine.Limits.RetryAfter = time.Hour
	b.queue(false, 1, 2)
	const violated = `new row for relation "posts" violates check constraint "signed"`
	for attempt := range 2 {
		stats := b.run(t)
		require.EqualValues(t, 1-attempt, stats.UsersProcessed)
		require.Equal(t, []batch.FaultCounts{{Table: "posts", SQLState: "23514", Message: violated, Count: 1}},
			stats.Errors)
		require.Equal(t, [][]string{{"1", fmt.Sprint(attempt + 1), "t", "posts: SQLSTATE 23514: " + violated}},
			b.Rows("SELECT user_id, attempts, consume_after > now() + interval '50 minutes', last_error FROM users_ghost_user_migrations"))
		require.Zero(t, b.run(t).UsersFailed, "the user is deferred")
		b.Exec("UPDATE users_ghost_user_migrations SET consume_after = now()")
	}
	b.Exec("UPDATE posts SET note = NULL")
	b.requireDone(t, b.run(t), 1)
}

func TestErrorsDeferOnlyTheirUser(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions+`
		CREATE TABLE receipts (id bigint PRIMARY KEY, visit_id bigint REFERENCES visits ON DELETE RESTRICT);
		INSERT INTO receipts VALUES (1, 2);
		CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF old.author_id = 3 THEN RAISE EXCEPTION 'not this one' USING ERRCODE = '53100'; END IF; RETURN new; END $$;
		CREATE TRIGGER picky BEFORE UPDATE ON posts FOR EACH ROW EXECUTE FUNCTION picky();
		INSERT INTO posts VALUES (1001, 3), (1004, 4);`, lists())
	b.engine.Limits.RetryAfter = time.Hour
	b.queue(false, 1, 3, 4)
	stats := b.run(t)
	require.EqualValues(t, 1, stats.UsersProcessed)
	require.EqualValues(t, 2, stats.UsersFailed)
	const restricted = "the row with id 1 refers to visits, and foreign key receipts_visit_id_fkey has no ON DELETE action"
	require.ElementsMatch(t, []batch.FaultCounts{
		{Table: "receipts", Message: restricted, Count: 1},
		{Table: "posts", SQLState: "53100", Message: "not this one", Count: 1},
	}, stats.Errors)
	require.Equal(t, [][]string{
		{"1", "1", "t", "receipts: " + restricted},
		{"3", "1", "t", "posts: SQLSTATE 53100: not this one"},
	}, b.queued())
	require.Equal(t, [][]string{{"t"}},
		b.Rows(`SELECT bool_and(consume_after BETWEEN now() + '50 min' AND now() + '70 min') FROM users_ghost_user_migrations`))
	for _, item := range b.items {
		if item.UserID.Number() == 3 {
			require.Equal(t, ghostuser.Failed, item.Outcome)
			require.Contains(t, item.Stack, "PL/pgSQL function picky()")
		}
	}
	require.False(t, b.run(t).Changed(), "deferred users are not tried")

	b.Exec("DELETE FROM receipts; DROP TRIGGER picky ON posts; UPDATE users_ghost_user_migrations SET consume_after = now()")
	b.requireDone(t, b.run(t), 2)
	require.Equal(t, [][]string{{"1", "150", "1500"}, {"3", "1", "0"}, {"4", "1", "0"}}, b.Rows(
		"SELECT payload ->> 'user_id', payload ->> 'moved', payload ->> 'deleted' FROM sexton.events ORDER BY 1"),
		"the counts include the first run")
}

// A foreign key whose action is missing or impossible fails only users with rows in its
// column. No row of these users is changed.
func TestForeignKeyWithoutActionFailsUsersWithRows(t *testing.T) {
	t.Parallel()
	type example struct{ tables, table, reason string }
	pgtest.Each(t, map[string]example{
		"no action": {
			"CREATE TABLE owners (id bigint PRIMARY KEY, boss_id bigint REFERENCES users); INSERT INTO owners VALUES (7, 1)", "owners",
			"owners.boss_id refers to users without an action (foreign key owners_boss_id_fkey), and no list contains it " +
				"(add {table: owners, columns: [boss_id]} to ghost_users.nullify, delete or move): row id 7",
		},
		"SET NULL on a NOT NULL column": {
			"CREATE TABLE owners (boss_id bigint NOT NULL REFERENCES users ON DELETE SET NULL); INSERT INTO owners VALUES (1)", "owners",
			"foreign key owners_boss_id_fkey sets owners.boss_id to NULL, which is NOT NULL (drop the constraint, or change the key's action): row ctid (0,1)",
		},
		"other users": {
			"ALTER TABLE users ADD parent_id bigint REFERENCES users ON DELETE CASCADE; UPDATE users SET parent_id = 1 WHERE id = 7", "users",
			"foreign key users_parent_id_fkey: deleting one user would delete other users " +
				"(change the key's action to SET NULL, or list the column in ghost_users.nullify): row id 7",
		},
	}, func(t *testing.T, _ string, test example) {
		b := setup(t, contributions+test.tables, lists())
		// With a target, several users are deleted in one batch.
		b.engine.Sizes.Target = 20 * time.Millisecond
		b.queue(false, 1, 2, 3)
		stats := b.run(t)
		require.EqualValues(t, 2, stats.UsersProcessed)
		require.Equal(t, [][]string{{"1", "1", "t", test.table + ": " + test.reason}}, b.queued())
		require.Equal(t, test.table, stats.Errors[0].Table)
		require.Equal(t, [][]string{{"120"}}, b.Rows("SELECT count(*) FROM posts WHERE author_id = 1"),
			"no row of the user is changed")
		require.Equal(t, [][]string{{"1"}, {"7"}}, b.Rows("SELECT id FROM users WHERE id IN (1, 7) ORDER BY 1"))
		require.Zero(t, b.run(t).UsersFailed, "the user is deferred")
	})
}

// A row that another session commits while the run waits for the lock on the user
// prevents the deletion.
func TestLateRowPreventsTheDeletion(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE owners (id bigint PRIMARY KEY, boss_id bigint REFERENCES users)", lists())
	b.queue(false, 1)
	tx := b.Begin(t, "INSERT INTO owners VALUES (7, 1)")
	wait := b.runWhile(t.Context(), t)
	b.AwaitLock(t)
	require.NoError(t, tx.Commit(t.Context()))
	require.EqualValues(t, 1, wait().UsersFailed)
	require.Contains(t, b.queued()[0][3], "owners: owners.boss_id refers to users without an action")
	b.Exec("DELETE FROM owners; UPDATE users_ghost_user_migrations SET consume_after = now()")
	b.requireDone(t, b.run(t), 1)
}

// Rows that another session commits while the run waits for the lock on the user are
// moved. If they are few, the transaction that deletes the user moves them.
func TestLateRowsAreMoved(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]int{"a few": 3, "more than a batch": 400}, func(t *testing.T, _ string, rows int) {
		b := setup(t, "", lists())
		b.engine.Sizes.Target = time.Second
		b.queue(false, 1)
		tx := b.Begin(t)
		pgtest.Exec(t, tx, "INSERT INTO posts SELECT n, 1 FROM generate_series(1, $1) AS n", rows)
		wait := b.runWhile(t.Context(), t)
		b.AwaitLock(t) // The foreign key check of the new rows has locked the user.
		require.NoError(t, tx.Commit(t.Context()))
		stats := wait()
		b.requireDone(t, stats, 1)
		require.EqualValues(t, rows, stats.Moved["posts.author_id"])
		require.EqualValues(t, rows, pgtest.Scalar[int64](t, b.Database,
			"SELECT count(*) FROM posts WHERE author_id = 9"))
		if rows == 3 {
			require.Equal(t, [][]string{{"t"}},
				b.Rows("SELECT posts.xmin = events.xmin FROM posts, sexton.events LIMIT 1"), "one transaction")
		}
	})
}

// Another session locks the user, adds rows without a foreign key and commits while the
// run waits for the lock. The run deletes these rows, too. The lock of the other session
// leaves no trace, so only a snapshot that is taken after the wait contains the rows.
func TestLateRowsWithoutForeignKeyAreDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t, "", lists())
	b.engine.Sizes.Target = time.Second
	b.queue(false, 1)
	tx := b.Begin(t, "SELECT FROM users WHERE id = 1 FOR KEY SHARE", "INSERT INTO visits VALUES (1, 1)")
	wait := b.runWhile(t.Context(), t)
	b.AwaitLock(t)
	require.NoError(t, tx.Commit(t.Context()))
	b.requireDone(t, wait(), 1)
	require.Empty(t, b.Rows("SELECT FROM visits"))
}

// If a deferred unique constraint fails the COMMIT of the batch that deletes the user,
// the duplicate row is found and the user is deleted.
func TestLateDuplicateOfADeferredConstraint(t *testing.T) {
	t.Parallel()
	l := lists()
	l.Move = append(l.Move, ghostuser.Move{Table: "stars", Columns: []string{"user_id"}})
	b := setup(t, `
		CREATE TABLE stars (user_id bigint REFERENCES users ON DELETE CASCADE, post_id bigint, UNIQUE (user_id, post_id) DEFERRABLE INITIALLY DEFERRED);
		INSERT INTO stars VALUES (9, 1);`, l)
	b.queue(false, 1)
	tx := b.Begin(t, "INSERT INTO stars VALUES (1, 1), (1, 2)")
	wait := b.runWhile(t.Context(), t)
	b.AwaitLock(t)
	require.NoError(t, tx.Commit(t.Context()))
	stats := wait()
	b.requireDone(t, stats, 1)
	require.EqualValues(t, 1, stats.Duplicates)
	require.Equal(t, [][]string{{"9", "1"}, {"9", "2"}}, b.Rows("SELECT * FROM stars ORDER BY 2"))
}

// A user with a row whose deletion exceeds the statement timeout is deferred, and the
// error names the table. Other users are deleted.
func TestSlowRowDefersTheUser(t *testing.T) {
	t.Parallel()
	b := setup(t, `
		CREATE TABLE pages (visit_id bigint REFERENCES visits ON DELETE CASCADE);
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN old; END';
		CREATE TRIGGER slow BEFORE DELETE ON pages FOR EACH ROW EXECUTE FUNCTION slow();
		INSERT INTO visits VALUES (1, 1), (2, 2);
		INSERT INTO pages VALUES (1);`, lists())
	b.engine.Session.Limits.StatementTimeout = 300 * time.Millisecond
	b.engine.Sizes = ghostuser.Sizes{Target: 5 * time.Millisecond, Delete: 4}
	b.queue(false, 1, 2)
	require.EqualValues(t, 1, b.run(t).UsersProcessed)
	queued := b.queued()
	require.Len(t, queued, 1)
	require.Equal(t, []string{"1", "1", "t"}, queued[0][:3])
	require.Regexp(t,
		`^(visits|pages): SQLSTATE 57014: canceling statement due to statement timeout: a single row takes longer. Check its triggers`, queued[0][3])
}

// A user whose statement breaks the connection, as a crash of the server process does, is
// deferred. Other users are deleted in the same run. The user is tried together with
// other users, then alone, and once more at the end.
func TestUserWhoseStatementBreaksTheConnection(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]time.Duration{"without target": 0, "with target": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, `
				INSERT INTO posts SELECT 10 * author + n, author FROM generate_series(1, 4) AS author, generate_series(1, 3) AS n;
				CREATE SEQUENCE losses;
				CREATE FUNCTION disconnect() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
					PERFORM nextval('public.losses'), pg_terminate_backend(pg_backend_pid());
					RETURN NEW;
				END $$;
				CREATE TRIGGER disconnect BEFORE UPDATE ON posts FOR EACH ROW WHEN (old.author_id = 2) EXECUTE FUNCTION disconnect();`, lists())
			b.engine.Sizes.Target = target
			own := b.engine.Session
			b.engine.More = func(context.Context) *batch.Session {
				return &batch.Session{
					Conn: pgtest.Acquire(t, b.Pool()).Conn(), Names: own.Names, Fence: own.Fence,
					Limits: own.Limits,
				}
			}
			b.queue(false, 1, 2, 3, 4)
			stats, err := b.engine.Run(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 3, stats.UsersProcessed)
			require.EqualValues(t, 1, stats.UsersFailed)
			require.Equal(t, [][]string{{
				"2", "1", "t",
				"posts: SQLSTATE 57P01: the connection was lost: terminating connection due to administrator command",
			}},
				b.queued())
			require.Equal(t, [][]string{{"t"}}, b.Rows("SELECT last_value <= 3 FROM losses"))
		})
	}
}

func TestTriggerKeepsRows(t *testing.T) {
	t.Parallel()
	type example struct{ tables, table string }
	pgtest.Each(t, map[string]example{
		"trigger undoes the update": {
			`CREATE TRIGGER t BEFORE UPDATE ON posts FOR EACH ROW EXECUTE FUNCTION keep_old();`, "posts",
		},
		"trigger skips the deletion": {
			`CREATE TRIGGER t BEFORE DELETE ON visits FOR EACH ROW EXECUTE FUNCTION keep_nothing();`, "visits",
		},
		"trigger inserts the row again": {
			`CREATE TRIGGER t AFTER DELETE ON visits FOR EACH ROW EXECUTE FUNCTION put_back();`, "visits",
		},
		"trigger inserts more rows than one batch": {
			`INSERT INTO visits SELECT n, 1 FROM generate_series(10001, 10100) AS n;
			CREATE TRIGGER t AFTER DELETE ON visits FOR EACH ROW EXECUTE FUNCTION put_back();`, "visits",
		},
	}, func(t *testing.T, _ string, test example) {
		b := setup(t, `
			CREATE FUNCTION keep_old() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN old; END';
			CREATE FUNCTION keep_nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
			CREATE FUNCTION put_back() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.visits VALUES (old.id + 1000000, old.user_id); RETURN NULL; END';
			INSERT INTO posts VALUES (1, 1), (2, 2); INSERT INTO visits VALUES (1, 1), (2, 2);`+test.tables, lists())
		b.engine.Sizes.Delete = 10
		b.queue(false, 1)
		stats := b.run(t)
		require.Len(t, stats.Errors, 1)
		require.Equal(t, test.table, stats.Errors[0].Table)
		require.Contains(t, stats.Errors[0].Message, "rows remain that no session has locked")
		require.Equal(t, [][]string{{"1"}}, b.Rows("SELECT id FROM users WHERE id = 1"))
	})
}

func TestUsersThatMayNotBeDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t, "UPDATE users SET user_type = 11 WHERE id = 8; INSERT INTO posts VALUES (1, 8), (2, 9)", lists())
	b.Exec("ALTER TABLE users_ghost_user_migrations DROP CONSTRAINT users_ghost_user_migrations_user_id_fkey")
	b.Exec("INSERT INTO users_ghost_user_migrations (user_id) VALUES (8), (9), (404)")
	stats := b.run(t)
	require.EqualValues(t, 2, stats.UsersFailed)
	require.EqualValues(t, 1, stats.UsersDropped)
	require.Equal(t, [][]string{
		{"8", "1", "t", "an internal user (user_type 11) cannot be deleted"},
		{"9", "1", "t", "the ghost user cannot be deleted"},
	}, b.queued())
	require.Empty(t, stats.Moved)
}

func TestUserRemovedFromTheQueueIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.queue(false, 1)
	b.engine.Progress = func(context.Context, *ghostuser.Stats) { b.Exec("DELETE FROM users_ghost_user_migrations") }
	stats := b.run(t)
	require.EqualValues(t, 1, stats.UsersDropped)
	require.Zero(t, stats.UsersProcessed)
	require.Equal(t, [][]string{{"1"}}, b.Rows("SELECT id FROM users WHERE id = 1"))
	require.Equal(t, ghostuser.Cancelled, b.items[0].Outcome)
}

// If a hard delete is changed into a soft delete during the run, the remaining rows are
// moved, and the event contains the new kind.
func TestKindOfDeletionChangesDuringTheRun(t *testing.T) {
	t.Parallel()
	b := setup(t, "INSERT INTO posts SELECT n, 1 FROM generate_series(1, 40) AS n;", lists())
	b.engine.Sizes.Nullify = 1
	b.queue(true, 1)
	b.engine.Progress = func(context.Context, *ghostuser.Stats) {
		b.Exec("UPDATE users_ghost_user_migrations SET hard_delete = false")
	}
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.Equal(t, map[string]int64{"posts.author_id": 1}, stats.Nullified)
	require.Equal(t, map[string]int64{"posts.author_id": 39}, stats.Moved)
	require.Equal(t, [][]string{{"false"}}, b.Rows("SELECT payload ->> 'hard_delete' FROM sexton.events"))
	require.False(t, b.items[0].HardDelete)
}

// Runs whose session is killed after each batch delete all users in the end, and count
// each row once.
func TestRunsKilledAfterEachBatch(t *testing.T) {
	t.Parallel()
	type example struct {
		target time.Duration
		two    bool
		users  int64
		// minKills is the minimum number of killed runs. Only the run's own connection is
		// killed, so runs with two connections may need no kill.
		minKills int
	}
	pgtest.Each(t, map[string]example{
		"without target":               {0, false, 2, 2 * (1 + 1 + 1 + 1)},
		"with target, one connection":  {time.Second, false, 4, 4},
		"with target, two connections": {time.Second, true, 4, 0},
	}, func(t *testing.T, _ string, c example) {
		b := setupPeople(t, "")
		b.queue(false, numbers(1001, 1000+c.users)...)
		kills := 0
		for done := false; !done; {
			b.engine = b.newEngineAfterKill(t)
			if c.two {
				b.useTwoConnections(t)
			}
			b.engine.Sizes = ghostuser.Sizes{Target: c.target, Move: 30, Delete: 50}
			kill := b.KillOnce(b.engine.Session.Conn)
			b.engine.Progress = func(context.Context, *ghostuser.Stats) { kill() }
			_, err := b.engine.Run(t.Context())
			if done = len(b.queued()) == 0; !done {
				require.Error(t, err)
			}
			// After its own connection was killed, a run with two connections continues
			// on the second one, and returns the error at the end.
			if err != nil {
				require.NotErrorIs(t, err, lease.ErrLost)
				kills++
			}
		}
		if c.target == 0 {
			require.Equal(t, c.minKills, kills)
		} else {
			require.GreaterOrEqual(t, kills, c.minKills)
		}
		require.Equal(t, [][]string{{"25", "30", fmt.Sprint(c.users)}},
			b.Rows("SELECT payload ->> 'moved', payload ->> 'deleted', count(*) FROM sexton.events GROUP BY 1, 2"))
		require.Equal(t, 20*c.users, pgtest.Scalar[int64](t, b.Database,
			"SELECT count(*) FROM posts WHERE author_id = 9"))
	})
}

// newEngineAfterKill ends the lease that a killed run still holds, and returns an engine
// with a new lease.
func (b *bundle) newEngineAfterKill(t *testing.T) *ghostuser.Engine {
	b.Exec("UPDATE sexton.leases SET expires_at = now()")
	return b.newEngine(t, lists())
}

func TestRetryFailedUsers(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application)
	db.Exec(`INSERT INTO users_ghost_user_migrations (user_id, consume_after, attempts, last_error) VALUES
		(1, now() + interval '20 minutes', 2, 'posts: 23503'), (2, now() - interval '1 minute', 0, NULL), (3, now() + interval '30 minutes', 1, 'likes: 23505'),
		(4, now() + interval '1 hour', 0, NULL)`)
	names := dbtest.Names()
	failed, err := ghostuser.ReadFailed(t.Context(), db.Pool(), names, 10)
	require.NoError(t, err)
	require.Len(t, failed, 2)
	require.EqualValues(t, 1, failed[0].UserID.Number())
	require.Equal(t, "posts: 23503", failed[0].LastError)
	require.EqualValues(t, 3, failed[1].UserID.Number())
	failed, err = ghostuser.ReadFailed(t.Context(), db.Pool(), names, 1)
	require.NoError(t, err)
	require.Len(t, failed, 1)

	retry := func(user dml.ID) (count int64) {
		require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool(), func(tx pgx.Tx) (err error) {
			count, err = ghostuser.Retry(t.Context(), tx, names, user)
			return err
		}))
		return count
	}
	// A worker is processing user 3.
	busy := db.Begin(t, "SELECT FROM users_ghost_user_migrations WHERE user_id = 3 FOR UPDATE")
	require.Zero(t, retry(dml.IntegerID(2)), "the user has not failed")
	require.EqualValues(t, 1, retry(dml.ID{}))
	require.Zero(t, retry(dml.ID{}), "the second call changes nothing")
	require.NoError(t, busy.Rollback(t.Context()))
	require.EqualValues(t, 1, retry(dml.IntegerID(3)))
	require.Equal(t, [][]string{
		{"1", "t", "0", "posts: 23503"},
		{"2", "t", "0", "NULL"},
		{"3", "t", "0", "likes: 23505"},
		{"4", "f", "0", "NULL"},
	},
		db.Rows("SELECT user_id, consume_after <= now(), attempts, last_error FROM users_ghost_user_migrations ORDER BY user_id"))
}
