package ghostuser_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/ghostuser"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// groups makes user 1 the only owner of the groups 1 and 2, and one of two owners of
// group 3.
const groups = `
CREATE TABLE groups (id bigint PRIMARY KEY, path text NOT NULL, parent_id bigint);
CREATE TABLE members (user_id bigint, source_type text, source_id bigint, access_level int, state smallint DEFAULT 0, requested_at timestamptz, expires_at date);
INSERT INTO groups VALUES (1, 'b-team'), (2, 'a-team'), (3, 'shared'), (4, 'past');
INSERT INTO members VALUES (1, 'Namespace', 1, 50), (1, 'Namespace', 2, 50), (1, 'Namespace', 3, 50), (2, 'Namespace', 3, 50),
	(2, 'Namespace', 1, 40), (1, 'Project', 4, 50);
INSERT INTO members VALUES
	(3, 'Namespace', 1, 50, 1, NULL, NULL),             -- awaits acceptance
	(4, 'Namespace', 1, 50, 0, now(), NULL),            -- requests access
	(5, 'Namespace', 1, 50, 0, NULL, current_date - 1), -- has expired
	(1, 'Namespace', 4, 50, 0, NULL, current_date - 1);`

func requireState(t *testing.T, err error, code, message string) {
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, code, pgErr.Code, pgErr.Message)
	require.Equal(t, message, pgErr.Message)
}

func TestDeleteUserBlocksAndQueuesOnce(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application)
	deleteUser := func(hard bool) bool {
		return pgtest.Scalar[bool](t, db.Database, "SELECT sexton.delete_user(1, 2, $1)", hard)
	}
	require.True(t, deleteUser(false))
	state := func() [][]string {
		return db.Rows(`SELECT state, initiator_user_id, hard_delete, consume_after <= now(), job.xmin, users.xmin
			FROM users JOIN users_ghost_user_migrations AS job ON user_id = users.id`)
	}
	first := state()
	require.Equal(t, []string{"blocked", "2", "f", "t"}, first[0][:4])
	require.False(t, deleteUser(true), "the second call")
	require.Equal(t, first, state(), "the second call changes nothing")
}

// delete_user keeps the states blocked, banned, ldap_blocked and deactivated. It sets any
// other state to blocked, and cancel_user_deletion restores the former state.
func TestCancelUserDeletionRestoresTheState(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application, "ALTER TABLE users ADD CHECK (state <> '')")
	for state, during := range map[string]string{
		"active": "blocked", "blocked_pending_approval": "blocked", "blocked": "blocked",
		"banned": "banned", "ldap_blocked": "ldap_blocked", "deactivated": "deactivated",
	} {
		db.Exec("UPDATE users SET state = $1 WHERE id = 1", state)
		db.Exec("SELECT sexton.delete_user(1, NULL)")
		now := func() [][]string { return db.Rows("SELECT state FROM users WHERE id = 1") }
		require.Equal(t, [][]string{{during}}, now())
		require.True(t, pgtest.Scalar[bool](t, db.Database, "SELECT sexton.cancel_user_deletion(1, 2)"))
		require.Equal(t, [][]string{{state}}, now())
		require.False(t, pgtest.Scalar[bool](t, db.Database, "SELECT sexton.cancel_user_deletion(1, 2)"),
			"the second call")
	}
	require.Equal(t, [][]string{{"1", "2", "6"}}, db.Rows(`SELECT payload ->> 'user_id', payload ->> 'by_user_id', count(*)
		FROM sexton.events WHERE kind = 'user_deletion_cancelled' GROUP BY 1, 2`))
	db.Exec("UPDATE users SET state = 'active' WHERE id = 1; SELECT sexton.delete_user(1, NULL); UPDATE users SET state = 'banned' WHERE id = 1")
	db.Exec("SELECT sexton.cancel_user_deletion(1, 2)")
	require.Equal(t, [][]string{{"banned"}}, db.Rows("SELECT state FROM users WHERE id = 1"),
		"the application has changed the state since")
	_, err := db.Pool().Exec(t.Context(), "SELECT sexton.cancel_user_deletion(404, NULL)")
	requireState(t, err, "SX010", "cancel the deletion: there is no user 404")
}

// A user is either canceled before a batch has changed a row, or the cancellation waits
// and the user is deleted. Both orders of the two sessions are tested.
func TestCancelDuringABatch(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]time.Duration{"without target": 0, "with target": 10 * time.Second},
		func(t *testing.T, _ string, target time.Duration) {
			b := setup(t, contributions, lists())
			b.engine.Sizes.Target = target
			b.queue(false, 1, 2)
			tx := b.Begin(t, "SELECT sexton.cancel_user_deletion(1, 2)")
			wait := b.runWhile(t.Context(), t)
			pgtest.Await(t, b.Pool(), "the other user to be deleted",
				"SELECT NOT EXISTS (SELECT FROM users WHERE id = 2)")
			require.NoError(t, tx.Commit(t.Context()))
			stats := wait()
			require.EqualValues(t, 1, stats.UsersProcessed)
			require.EqualValues(t, 1, stats.UsersDropped)
			require.Zero(t, stats.UsersFailed)
			require.Equal(t, [][]string{{"120"}}, b.Rows("SELECT count(*) FROM posts WHERE author_id = 1"))

			// The batch locks the row in the queue before it changes its first row.
			b.Exec(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = '1min' AS
				'BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(1); RETURN new; END';
			CREATE TRIGGER hold BEFORE UPDATE ON posts FOR EACH ROW EXECUTE FUNCTION hold()`)
			b.queue(false, 1, 3)
			b.engine = b.newEngineAfterKill(t)
			b.engine.Sizes.Target = target
			held := b.Begin(t, "SELECT pg_advisory_xact_lock(1)")
			wait = b.runWhile(t.Context(), t)
			b.AwaitLock(t)
			_, err := b.Pool().Exec(t.Context(),
				"BEGIN; SET LOCAL lock_timeout = '10ms'; SELECT sexton.cancel_user_deletion(1, 2); COMMIT")
			require.ErrorContains(t, err, "lock timeout")
			require.NoError(t, held.Rollback(t.Context()))
			b.requireDone(t, wait(), 2)
		})
}

func TestDeleteUserRefuses(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application+groups, "UPDATE users SET user_type = id WHERE id IN (6, 7)")
	for call, expected := range map[string][2]string{
		"sexton.delete_user(404, NULL)":  {"SX010", "delete user: there is no user 404"},
		"sexton.delete_user(NULL, NULL)": {"SX010", "delete user: there is no user NULL"},
		"sexton.delete_user(9, NULL)":    {"SX011", "delete user 9: the ghost user cannot be deleted"},
		"sexton.delete_user(7, NULL)": {
			"SX011",
			"delete user 7: an internal user (user_type 7) cannot be deleted",
		},
		"sexton.delete_user(1, NULL)": {
			"SX012",
			"delete user 1: sole owner of the groups a-team (id 2), b-team (id 1)",
		},
		"sexton.delete_user(1, NULL, true, true)": {
			"SX013",
			"delete user 1: cannot delete the groups a-team (id 2), b-team (id 1), because the deletion of groups is not installed",
		},
		"sexton.delete_user(1, NULL, false, NULL)": {
			"SX012",
			"delete user 1: sole owner of the groups a-team (id 2), b-team (id 1)",
		},
		"sexton.delete_user(1, NULL, NULL, NULL)": {
			"SX012",
			"delete user 1: sole owner of the groups a-team (id 2), b-team (id 1)",
		},
		"sexton.delete_user(-1, -1, false, true)":       {"SX010", "delete user: there is no user -1"},
		"sexton.delete_user(9, 9, delete_groups=>true)": {"SX011", "delete user 9: the ghost user cannot be deleted"},
	} {
		_, err := db.Pool().Exec(t.Context(), "SELECT "+call)
		requireState(t, err, expected[0], expected[1])
	}
	require.Equal(t, [][]string{{"active", "9"}}, db.Rows("SELECT state, count(*) FROM users GROUP BY 1"),
		"nothing changed")
	db.Exec("SELECT sexton.delete_user(6, NULL), sexton.delete_user(2, NULL, true, true)")
	// The other owner of the shared group is queued now, and does not count as an owner
	// any more.
	_, err := db.Pool().Exec(t.Context(), "SELECT sexton.delete_user(1, NULL)")
	requireState(t, err, "SX012", "delete user 1: sole owner of the groups a-team (id 2), b-team (id 1), shared (id 3)")
}

// An active owner of an ancestor group counts as an owner.
func TestOwnersOfAncestorGroupsCount(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application+groups, `
		DELETE FROM members;
		INSERT INTO groups VALUES (12, 'top', NULL), (10, 'base', 12), (13, 'below', 10), (14, 'beside', 12);
		INSERT INTO members VALUES (1, 'Namespace', 10, 50);`)
	for name, test := range map[string]struct{ given, refused string }{
		"owned in the parent": {"INSERT INTO members VALUES (2, 'Namespace', 10, 50)", ""},
		"owned at the top":    {"INSERT INTO members VALUES (2, 'Namespace', 12, 50)", ""},
		"owned by the user only": {
			"INSERT INTO members VALUES (1, 'Namespace', 12, 50)",
			"base (id 10), top (id 12)",
		},
		"owned below":                 {"INSERT INTO members VALUES (2, 'Namespace', 13, 50)", "base (id 10)"},
		"owned in a sibling":          {"INSERT INTO members VALUES (2, 'Namespace', 14, 50)", "base (id 10)"},
		"maintainer of an ancestor":   {"INSERT INTO members VALUES (2, 'Namespace', 12, 40)", "base (id 10)"},
		"owner is banned":             {"INSERT INTO members VALUES (2, 'Namespace', 12, 50); UPDATE users SET state = 'banned' WHERE id = 2", "base (id 10)"},
		"owner is deactivated":        {"INSERT INTO members VALUES (2, 'Namespace', 12, 50); UPDATE users SET state = 'deactivated' WHERE id = 2", ""},
		"owner does not exist":        {"INSERT INTO members VALUES (404, 'Namespace', 12, 50)", "base (id 10)"},
		"owners are queued or banned": {"INSERT INTO members VALUES (2, 'Namespace', 12, 50), (3, 'Namespace', 12, 50); SELECT sexton.delete_user(2, NULL); UPDATE users SET state = 'banned' WHERE id = 3", "base (id 10)"},
		"ownership has expired": {
			"INSERT INTO members VALUES (2, 'Namespace', 12, 50, 0, NULL, current_date - 1)",
			"base (id 10)",
		},
		"groups form a cycle": {"UPDATE groups SET parent_id = 10 WHERE id = 12", "base (id 10)"},
	} {
		tx := db.Begin(t, test.given)
		_, err := tx.Exec(t.Context(), "SELECT sexton.delete_user(1, NULL)")
		if test.refused == "" {
			require.NoError(t, err, name)
		} else {
			requireState(t, err, "SX012", "delete user 1: sole owner of the groups "+test.refused)
		}
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

func TestDeleteUserSchedulesItsGroups(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(`
		INSERT INTO users (id, username, email, name, admin) SELECT id, id, id, id, id = 2 FROM generate_series(1, 3) AS id;
		INSERT INTO groups (id, name, path) VALUES (1, 'b-team', 'b-team'), (2, 'a-team', 'a-team'), (3, 'shared', 'shared');
		INSERT INTO members (user_id, source_type, source_id, access_level) VALUES
			(1, 'Namespace', 1, 50), (1, 'Namespace', 2, 50), (1, 'Namespace', 3, 50), (3, 'Namespace', 3, 50);`)
	for initiator, expected := range map[string][2]string{
		"1": {
			"SX015",
			"delete user 1: the deletion of the groups a-team (id 2), b-team (id 1) needs an initiator other than this user",
		},
		"NULL": {
			"SX015",
			"delete user 1: the deletion of the groups a-team (id 2), b-team (id 1) needs an initiator other than this user",
		},
		"3": {"SX021", "schedule the deletion of group 2: user 3 may not remove it"},
	} {
		_, err := db.Pool().Exec(t.Context(), "SELECT sexton.delete_user(1, "+initiator+", delete_groups => true)")
		requireState(t, err, expected[0], expected[1])
	}
	require.Empty(t, db.Rows("SELECT FROM group_deletion_schedules"))
	require.Equal(t, [][]string{{"active"}}, db.Rows("SELECT state FROM users WHERE id = 1"), "nothing changed")
	db.Exec("SELECT sexton.schedule_group_deletion(2, 1)")
	require.True(t, pgtest.Scalar[bool](t, db.Database, "SELECT sexton.delete_user(1, 2, delete_groups => true)"))
	require.Equal(t, [][]string{{"1", "b-team-deletion_scheduled-1", "2"}, {"2", "a-team-deletion_scheduled-2", "2"}},
		db.Rows("SELECT id, path, user_id FROM groups JOIN group_deletion_schedules ON group_id = id ORDER BY 1"),
		"including the group that the user had scheduled, which would be restored otherwise")
	require.Equal(t, [][]string{{"1"}}, db.Rows("SELECT user_id FROM users_ghost_user_migrations"))
}

// When a user is deleted, the group deletions that it scheduled are reassigned to the
// initiator if the initiator may remove the groups. This happens in the batch that
// deletes the schedules of the user by a cascading foreign key.
func TestScheduledGroupsPassToTheInitiator(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(`
		ALTER TABLE group_deletion_schedules ADD FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
		INSERT INTO users (id, username, email, name, admin) SELECT id, id, id, id, id = 2 FROM generate_series(1, 4) AS id;
		INSERT INTO groups (id, name, path) VALUES (1, 'a', 'a'), (2, 'b', 'b');
		INSERT INTO members (user_id, source_type, source_id, access_level) VALUES
			(1, 'Namespace', 1, 50), (3, 'Namespace', 2, 50), (4, 'Namespace', 1, 50), (4, 'Namespace', 2, 50);
		SELECT sexton.schedule_group_deletion(1, 1), sexton.schedule_group_deletion(2, 3);
		SELECT sexton.delete_user(1, 2), sexton.delete_user(3, 1)`)
	b := newBundle(t, db, defaults(t))
	b.requireDone(t, b.run(t), 2)
	require.Equal(t, [][]string{{"1", "a-deletion_scheduled-1", "2"}},
		db.Rows("SELECT id, path, user_id FROM groups JOIN group_deletion_schedules ON group_id = id"),
		"the initiator 1 may not remove group 2")
	require.Equal(t, [][]string{{"b", "NULL"}}, db.Rows("SELECT path, marked_for_deletion_on FROM groups WHERE id = 2"))
}

// delete_user takes at most 256 advisory locks, because a user may own more groups than
// fit into the lock table of the server.
func TestDeleteUserTakesFewLocks(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application+groups, `
		INSERT INTO groups SELECT n, n FROM generate_series(1001, 2000) AS n;
		INSERT INTO members SELECT owner, 'Namespace', n, 50 FROM generate_series(1001, 2000) AS n, (VALUES (6), (7)) AS owners (owner);`)
	tx := pgtest.Begin(t, db.Pool())
	var locks int64
	pgtest.Exec(t, tx, "SELECT sexton.delete_user(6, NULL)")
	require.NoError(t,
		tx.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(&locks))
	require.LessOrEqual(t, locks, int64(256))
	require.NotZero(t, locks)
}

// delete_user reads few rows per owned group, even if the statistics of the tables are
// out of date.
func TestDeleteUserReadsFewRows(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	const groups = 1000
	db.Exec("INSERT INTO users (id, username, email, name, admin) SELECT id, id, id, id, id = 2 FROM generate_series(1, 3) AS id")
	db.Exec("INSERT INTO groups (id, parent_id, name, path) SELECT n, CASE WHEN n > 1 THEN 1 END, n, n FROM generate_series(1, $1::integer) AS n", groups)
	db.Exec("INSERT INTO members (user_id, source_type, source_id, access_level) SELECT 1, 'Namespace', id, 50 FROM groups")
	db.Exec("VACUUM ANALYZE")
	tx := db.Begin(t, "SELECT sexton.delete_user(1, 2, delete_groups => true)")
	var rowsRead, indexScans int64
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT sum(seq_tup_read), sum(idx_scan) FILTER (WHERE relname = 'members')
		FROM pg_stat_xact_user_tables WHERE relname IN ('groups', 'members', 'users', 'group_deletion_schedules', 'users_ghost_user_migrations')`).Scan(&rowsRead, &indexScans))
	// Postgres reads the table of schedules sequentially while the table has few pages. A
	// sequential scan for each group would read groups * groups / 2 rows.
	require.Less(t, rowsRead, int64(100*groups), "rows read by sequential scans")
	require.GreaterOrEqual(t, indexScans, int64(groups), "index scans for other owners, per group")
}

// Two owners of one group cannot be queued in parallel: the second call waits for the
// first and is refused.
func TestTwoOwnersAreNotQueuedInParallel(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application+groups, "DELETE FROM members WHERE source_id <> 3")
	tx := db.Begin(t, "SELECT sexton.delete_user(1, NULL)")
	second := dbtest.InBackground(func() (pgconn.CommandTag, error) {
		return db.Pool().Exec(t.Context(), "SELECT sexton.delete_user(2, NULL)")
	})
	pgtest.Await(t, db.Pool(), "the second call to wait",
		"SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))")
	require.NoError(t, tx.Commit(t.Context()))
	_, err := second()
	requireState(t, err, "SX012", "delete user 2: sole owner of the groups shared (id 3)")
}

func TestFunctionsNeedGrants(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application)
	role := db.CreateRole()
	db.Exec("GRANT USAGE ON SCHEMA sexton TO " + role)
	for _, function := range []string{"sexton.delete_user(bigint, bigint, boolean, boolean)", "sexton.ghost_user()"} {
		require.False(t, pgtest.Scalar[bool](t, db.Database, "SELECT has_function_privilege($1, $2, 'EXECUTE')", role,
			function))
	}
	grants := migrate.Grants(migrate.Database{
		TrackedSchema: "public", Jobs: true,
		Components: []string{migrate.GhostUsers},
	})
	require.Contains(t, grants,
		`GRANT EXECUTE ON FUNCTION "sexton".delete_user(bigint, bigint, boolean, boolean) TO :"application", :"worker"`)
	// The function runs with the privileges of its owner.
	db.Exec("GRANT EXECUTE ON FUNCTION sexton.delete_user TO " + role + "; SET ROLE " + role +
		"; SELECT sexton.delete_user(1, 1); RESET ROLE")
	require.Equal(t, [][]string{{"1"}}, db.Rows("SELECT user_id FROM users_ghost_user_migrations"))
}

func TestTheGrantsOfTheWorkerAreEnough(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions+"DELETE FROM users WHERE id = 9", lists())
	b.queue(false, 1)
	// Row-level security is enabled after the call of delete_user, because policies also
	// apply to the owner of the function.
	b.Exec("ALTER TABLE users ENABLE ROW LEVEL SECURITY")
	application, worker, viewer := b.CreateRole(), b.CreateRole(), b.CreateRole()
	b.Exec(strings.NewReplacer(`:"application"`, application, `:"worker"`, worker, `:"viewer"`, viewer).Replace(
		migrate.Grants(migrate.Database{
			TrackedSchema: "public", Jobs: true,
			Components: []string{migrate.GhostUsers, migrate.PlaceholderUsers},
		})))
	b.Exec("GRANT SELECT ON visits TO " + worker + "; GRANT SELECT, UPDATE (note) ON posts TO " + worker)
	conn := pgtest.Connect(t, b.AsRole(worker)+"&search_path=public")
	missing := func() (lines []string) {
		for _, p := range pgtest.Must(ghostuser.MissingPrivileges(t.Context(), conn, b.engine.Plan))(t) {
			lines = append(lines, p.String())
		}
		return lines
	}
	hidden := "ghost_users: row-level security hides rows of public.users from the database role (ALTER ROLE " +
		worker + " BYPASSRLS)"
	lacks := func(privileges, table string) string {
		return fmt.Sprintf("ghost_users: the database role lacks %s on table %s (GRANT %s ON %s TO %s)", privileges,
			table, privileges, table, worker)
	}
	require.Equal(t, []string{
		hidden, lacks("UPDATE", "public.posts"), lacks("DELETE, SELECT, UPDATE", "public.likes"),
		lacks("DELETE, UPDATE", "public.visits"),
	}, missing())
	b.Exec("GRANT SELECT, UPDATE, DELETE ON posts, likes, visits TO " + worker)
	require.Equal(t, []string{hidden}, missing())
	b.engine.Session.Conn = conn
	_, err := b.engine.Run(t.Context())
	require.ErrorContains(t, err, "row-level security", "policies would hide rows")

	b.Exec("ALTER TABLE users DISABLE ROW LEVEL SECURITY")
	b.requireDone(t, b.run(t), 1)
	_, err = conn.Exec(t.Context(), "UPDATE users SET name = 'x'")
	requireState(t, err, "42501", "permission denied for table users")
}

// sessions is the number of parallel sessions. It is the size of the pool.
const sessions = 20

// runInSessions runs a query in many sessions in parallel, and returns the value from
// each session.
func runInSessions[T any](t *testing.T, db *dbtest.DB, query string) []T {
	begin, values, errs := make(chan struct{}), make([]T, sessions), make(chan error, sessions)
	for i := range sessions {
		conn := pgtest.Acquire(t, db.Pool())
		go func() {
			<-begin
			err := conn.QueryRow(t.Context(), query).Scan(&values[i])
			// The connection is released first, because the test needs a connection of
			// the pool.
			conn.Release()
			errs <- err
		}()
	}
	close(begin)
	for range sessions {
		require.NoError(t, <-errs)
	}
	return values
}

func TestManySessionsDeleteOneUser(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application+groups)
	queued := runInSessions[bool](t, db, "SELECT sexton.delete_user(2, 1)")
	require.Len(t, slices.DeleteFunc(queued, func(yes bool) bool { return !yes }), 1,
		"sessions that have queued the user")
	require.Equal(t, [][]string{{"2", "1", "blocked"}}, db.Rows(
		"SELECT user_id, initiator_user_id, state FROM users_ghost_user_migrations JOIN users ON users.id = user_id"))
}

func TestGhostUserIsCreatedOnce(t *testing.T) {
	t.Parallel()
	type example struct{ given, username, email string }
	pgtest.Each(t, map[string]example{
		"no users": {"DELETE FROM users", "ghost", "ghost@example.com"},
		"names are taken": {
			"UPDATE users SET username = (ARRAY['Ghost', 'ghost1', 'GHOST2', 'ghost3'])[id], email = (ARRAY['ghost@example.com', 'Ghost1@example.com', 'ghost3@example.com', '4@x.com'])[id] WHERE id <= 4",
			"ghost4", "ghost2@example.com",
		},
	}, func(t *testing.T, _ string, test example) {
		db := dbtest.WithUsers(t, application, "DELETE FROM users WHERE id = 9;"+test.given)
		require.Len(t, slices.Compact(runInSessions[int64](t, db, "SELECT sexton.ghost_user()")), 1, "different answers")
		require.Equal(t, [][]string{{test.username, test.email, "Ghost User", "active", "f"}},
			db.Rows("SELECT username, email, name, state, admin FROM users WHERE user_type = 5"))
	})
}

func TestGhostUserIfIDsAreTaken(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application, "DELETE FROM users; ALTER SEQUENCE users_id_seq RESTART WITH 1")
	db.Exec("INSERT INTO users (id, username, email, name) SELECT n, 'u' || n, n || '@x.com', '' FROM generate_series(1, 30) AS n")
	_, err := db.Pool().Exec(t.Context(), "SELECT sexton.ghost_user()")
	requireState(t, err, "SX014",
		`the ghost user cannot be created: duplicate key value violates unique constraint "users_pkey"`)
	db.Exec("SELECT setval('users_id_seq', 30)")
	require.EqualValues(t, 31, pgtest.Scalar[int64](t, db.Database, "SELECT sexton.ghost_user()"))
}

func TestGhostUserCannotBeCreated(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application, `DELETE FROM users WHERE id = 9;
		ALTER TABLE users ADD created_at timestamp NOT NULL DEFAULT now(), ADD organization_id bigint NOT NULL DEFAULT 1, ADD shard int NOT NULL DEFAULT 1;
		ALTER TABLE users ALTER created_at DROP DEFAULT, ALTER organization_id DROP DEFAULT, ALTER shard DROP DEFAULT`)
	_, err := db.Pool().Exec(t.Context(), "SELECT sexton.ghost_user()")
	requireState(t, err, "SX014", "the ghost user cannot be created: table users requires a value for organization_id, shard")
	db.Exec("ALTER TABLE users DROP organization_id, DROP shard")
	_, err = db.Pool().Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT sexton.ghost_user(); COMMIT")
	requireState(t, err, "SX014", "there is no ghost user, and none can be created at isolation level repeatable read")
	db.Exec("SELECT sexton.ghost_user()")
}
