package ghostuser_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/drain/dml"
	"sexton/internal/ghostuser"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// accounts returns SQL that creates an application whose keys have the given type. It has
// the accounts 1 to 9, of which 9 is the ghost user, and rows that refer to them.
func accounts(kind string) string {
	return strings.ReplaceAll(fmt.Sprintf(`
CREATE TABLE accounts (id $ PRIMARY KEY, email text NOT NULL, state text NOT NULL DEFAULT 'active', account_id int);
CREATE TABLE documents (id bigint PRIMARY KEY, author_id $ NOT NULL REFERENCES accounts, reviewer_id $ REFERENCES accounts ON DELETE RESTRICT);
CREATE INDEX ON documents (author_id); CREATE INDEX ON documents (reviewer_id);
CREATE TABLE sessions (id bigint PRIMARY KEY, account_id $);
CREATE INDEX ON sessions (account_id);
CREATE TABLE stars (account_id $ REFERENCES accounts ON DELETE CASCADE, document_id bigint, PRIMARY KEY (account_id, document_id));
CREATE TABLE notes (id bigint PRIMARY KEY, account_id $ REFERENCES accounts ON DELETE SET NULL);
CREATE INDEX ON notes (account_id);
CREATE TABLE members (id int, name text);
CREATE TABLE groups (id int);
INSERT INTO accounts SELECT %[1]s, n || '@example.com' FROM generate_series(1, 9) AS n;
INSERT INTO documents SELECT n, %[2]s, %[3]s FROM generate_series(1, 400) AS n;
INSERT INTO sessions SELECT n, %[2]s FROM generate_series(1, 400) AS n;
INSERT INTO stars SELECT %[2]s, n FROM generate_series(1, 400) AS n;
INSERT INTO notes SELECT n, %[2]s FROM generate_series(1, 400) AS n;
ANALYZE`, dbtest.KeySQL(kind, "n"), dbtest.KeySQL(kind, "n % 4 + 1"), dbtest.KeySQL(kind, "(n + 1) % 4 + 1")), "$", kind)
}

// anyUsers returns the configuration of the accounts. rule is the name of a function that
// decides whether an account may be deleted, or empty.
func anyUsers(kind, rule string) migrate.Users {
	return migrate.Users{
		Table: "accounts", Key: "id", Ghost: dbtest.Key(kind, 9), MayDelete: rule,
		OnRequest: map[string]string{"state": "blocked"},
	}
}

func anyLists(kind string) ghostuser.Lists {
	return ghostuser.Lists{
		Users:   ghostuser.Users{Table: "accounts", Key: "id", Ghost: dbtest.Key(kind, 9)},
		Move:    []ghostuser.Move{{Table: "documents", Columns: []string{"author_id"}, Always: true}},
		Delete:  []ghostuser.Columns{{Table: "sessions", Columns: []string{"account_id"}, Event: true}},
		Nullify: []ghostuser.Columns{{Table: "documents", Columns: []string{"reviewer_id"}}},
	}
}

func anyBundle(t *testing.T, kind string, later ...string) *bundle {
	return newBundle(t, dbtest.WithAccounts(t, accounts(kind), anyUsers(kind, ""), later...), anyLists(kind))
}

// Users with keys of every type can be queued, canceled and deleted. Rows of other users
// are kept.
func TestUsersOfAnyTable(t *testing.T) {
	t.Parallel()
	for kind := range dbtest.Keys {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := anyBundle(t, kind)
			one, two := dbtest.Key(kind, 1), dbtest.Key(kind, 2)
			call := func(function, key string) bool {
				return pgtest.Scalar[bool](t, b.Database, "SELECT sexton."+function+"($1::"+kind+", $2::"+kind+")", key,
					two)
			}
			state := func(key string) [][]string {
				return b.Rows("SELECT state FROM accounts WHERE id::text = $1",
					key)
			}
			require.True(t, call("delete_user", one))
			require.False(t, call("delete_user", one), "the user is queued already")
			require.Equal(t, [][]string{{"blocked"}}, state(one))
			require.True(t, call("cancel_user_deletion", one))
			require.Equal(t, [][]string{{"active"}}, state(one))
			require.True(t, call("delete_user", one))
			b.Exec("SELECT sexton.delete_user($1::"+kind+", NULL, true)", two)

			stats := b.run(t)
			b.requireDone(t, stats, 2)
			require.Equal(t, map[string]int64{"documents.author_id": 200}, stats.Moved)
			require.Equal(t, map[string]int64{"sessions.account_id": 200, "stars.account_id": 200}, stats.Deleted)
			require.Equal(t, map[string]int64{"documents.reviewer_id": 200, "notes.account_id": 200}, stats.Nullified)
			require.Equal(t, [][]string{{"7"}}, b.Rows("SELECT count(*) FROM accounts"))
			require.Equal(t, [][]string{{"200", "100", "100"}}, b.Rows(`SELECT count(*) FILTER (WHERE author_id::text = $1), count(*) FILTER (WHERE author_id::text = $2),
				count(*) FILTER (WHERE author_id::text = $3) FROM documents`, dbtest.Key(kind, 9), dbtest.Key(kind, 3), dbtest.Key(kind, 4)))
			for _, table := range []string{
				"sessions", "stars", "notes WHERE account_id IS NOT NULL",
				"documents WHERE reviewer_id IS NOT NULL",
			} {
				require.Equal(t, [][]string{{"200"}}, b.Rows("SELECT count(*) FROM "+table), table)
			}
			json := map[bool]string{true: "number", false: "string"}[kind == "bigint" || kind == "integer"]
			require.Equal(t, [][]string{
				{"files_orphaned", json, one},
				{"files_orphaned", json, two},
				{"user_deletion_cancelled", json, one},
				{"user_destroyed", json, one},
				{"user_destroyed", json, two},
			}, b.Rows(`SELECT DISTINCT kind, jsonb_typeof(payload -> 'user_id'), payload ->> 'user_id' FROM sexton.events ORDER BY kind, 3`))
		})
	}
}

// delete_user refuses the ghost user and users that the rule refuses. If the rule
// function is not safe to call, migrations fail and delete_user refuses all users.
func TestUsersOfAnyTableAreRefused(t *testing.T) {
	t.Parallel()
	const kind = "uuid"
	d := dbtest.WithAccounts(t, accounts(kind), migrate.Users{})
	d.Exec(`CREATE SCHEMA app; CREATE FUNCTION app.may_delete(uuid, uuid) RETURNS text LANGUAGE sql
		AS $$ SELECT 'is an administrator' WHERE $1 = '00000000-0000-0000-0000-000000000003' $$`)
	users := anyUsers(kind, "app.may_delete")
	up := func() error { return d.Migrate(t, users) }
	const alter = "ALTER FUNCTION app.may_delete(uuid, uuid) SECURITY DEFINER SET search_path = pg_catalog, pg_temp"
	require.ErrorContains(t, up(), "would run with the privileges of Sexton's owner ("+strings.ReplaceAll(alter,
		"app.may_delete", `"app"."may_delete"`))
	d.Exec("ALTER FUNCTION app.may_delete(uuid, uuid) SECURITY DEFINER")
	require.ErrorContains(t, up(), "would run with the privileges of Sexton's owner")
	d.Exec(alter)
	const strict = `the function "app"."may_delete"(uuid, uuid) is STRICT: it would allow everything if an argument is NULL`
	d.Exec("ALTER FUNCTION app.may_delete(uuid, uuid) STRICT")
	require.ErrorContains(t, up(), strict+` (ALTER FUNCTION "app"."may_delete"(uuid, uuid) CALLED ON NULL INPUT`)
	d.Exec("ALTER FUNCTION app.may_delete(uuid, uuid) CALLED ON NULL INPUT")
	require.NoError(t, up())

	refused := func(n int, code, message string) {
		_, err := d.Pool().Exec(t.Context(), "SELECT sexton.delete_user($1::uuid, NULL)", dbtest.Key(kind, n))
		requireState(t, err, code, message)
	}
	refused(9, "SX011", "delete user 00000000-0000-0000-0000-000000000009: the ghost user cannot be deleted")
	refused(3, "SX011", "delete user 00000000-0000-0000-0000-000000000003: is an administrator")
	refused(10, "SX010", "delete user: there is no user 00000000-0000-0000-0000-000000000010")
	d.Exec("SELECT sexton.delete_user($1, NULL)", dbtest.Key(kind, 1))
	const unfit = "delete user 00000000-0000-0000-0000-000000000002: " +
		`the function "app"."may_delete"(uuid, uuid) is not SECURITY DEFINER with a search_path of its own, or is STRICT or returns a set`
	d.Exec("ALTER FUNCTION app.may_delete(uuid, uuid) STRICT")
	refused(2, "SX011", unfit)
	d.Exec("ALTER FUNCTION app.may_delete(uuid, uuid) CALLED ON NULL INPUT SECURITY INVOKER")
	refused(2, "SX011", unfit)

	d.Exec(`DROP FUNCTION app.may_delete; CREATE FUNCTION app.may_delete(uuid, uuid) RETURNS SETOF text LANGUAGE sql
		SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ SELECT 'nobody' WHERE false $$`)
	require.ErrorContains(t, up(), `the function "app"."may_delete"(uuid, uuid) returns SETOF text instead of text`)
	refused(2, "SX011", unfit)
}

// A migration down revokes the privileges on rule functions that the migration up has
// granted to the owner of Sexton's functions.
func TestPrivilegesOnRulesAreRevoked(t *testing.T) {
	t.Parallel()
	d := dbtest.WithAccounts(t, accounts("uuid"), migrate.Users{}, `CREATE SCHEMA "a\pp";
		CREATE FUNCTION "a\pp"."one's ""first"""(uuid, uuid) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT NULL';
		REVOKE ALL ON FUNCTION "a\pp"."one's ""first""" FROM PUBLIC;
		CREATE FUNCTION helper(uuid, uuid) RETURNS text LANGUAGE sql AS 'SELECT NULL'; GRANT EXECUTE ON FUNCTION helper TO sexton_owner`)
	granted := func() [][]string {
		return d.Rows(`SELECT proname FROM pg_proc, aclexplode(proacl) AS entry
			WHERE pronamespace <> 'sexton'::regnamespace AND grantee = 'sexton_owner'::regrole ORDER BY proname`)
	}
	require.NoError(t, d.Migrate(t, anyUsers("uuid", `a\pp.one's "first"`)))
	require.Equal(t, [][]string{{"helper"}, {`one's "first"`}}, granted())
	_, err := migrate.Down(t.Context(), pgtest.Logger(t), migrate.Database{
		Name: "main", Conn: pgtest.Must(pgx.ParseConfig(d.URL))(t), TrackedSchema: "public", Jobs: true,
	}, true)
	require.NoError(t, err)
	d.Exec("CREATE SCHEMA sexton")
	require.Equal(t, [][]string{{"helper"}}, granted())
}

// A migration to another type of keys replaces the functions. It fails if users are
// queued.
func TestMigrationToAnotherKeyType(t *testing.T) {
	t.Parallel()
	d := dbtest.WithUsers(t, application)
	d.Exec(accounts("uuid"))
	d.Exec("SELECT sexton.delete_user(1, NULL)")
	require.ErrorContains(t, d.Migrate(t, anyUsers("uuid", "")),
		"public.users_ghost_user_migrations still has users, and must refer to public.accounts")
	d.Exec("SELECT sexton.cancel_user_deletion(1, NULL)")
	for range 2 {
		require.NoError(t, d.Migrate(t, anyUsers("uuid", "")))
	}
	functions := func() [][]string {
		return d.Rows(`SELECT oid::regprocedure FROM pg_proc
			WHERE pronamespace = 'sexton'::regnamespace AND proname LIKE '%delete_user' ORDER BY 1`)
	}
	require.Equal(t, [][]string{{"sexton.delete_user(uuid,uuid,boolean,boolean)"}}, functions())
	d.Exec("SELECT sexton.delete_user($1, NULL)", dbtest.Key("uuid", 1))
	b := newBundle(t, d, anyLists("uuid"))
	b.requireDone(t, b.run(t), 1)
	require.NoError(t, d.Migrate(t, migrate.Users{}))
	require.Equal(t, [][]string{{"sexton.delete_user(bigint,bigint,boolean,boolean)"}}, functions())
	require.Equal(t, [][]string{{"users", "bigint"}}, d.Rows(`SELECT confrelid::regclass, format_type(atttypid, NULL) FROM pg_constraint
		JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
		WHERE conrelid = 'users_ghost_user_migrations'::regclass AND contype = 'f'`))
}

// cancel_user_deletion restores the columns that delete_user has set, unless the
// application has changed them since. It works if other columns have NOT NULL domains.
func TestCancellingLeavesOtherColumnsAlone(t *testing.T) {
	t.Parallel()
	users := anyUsers("bigint", "")
	users.OnRequest["email"] = "none"
	d := dbtest.WithAccounts(t, accounts("bigint"), users,
		"CREATE DOMAIN handle AS text NOT NULL; ALTER TABLE accounts ADD handle handle DEFAULT 'x', ADD account text")
	for _, change := range []struct{ sql, state, email string }{
		{"", "active", "1@example.com"},
		{"UPDATE accounts SET state = 'banned' WHERE id = 1", "banned", "none"},
		{"UPDATE users_ghost_user_migrations SET previous_state = NULL", "blocked", "none"},
	} {
		d.Exec("UPDATE accounts SET state = 'active', email = '1@example.com' WHERE id = 1")
		d.Exec("SELECT sexton.delete_user(1, NULL)")
		require.Equal(t, [][]string{{"blocked", "none"}}, d.Rows("SELECT state, email FROM accounts WHERE id = 1"))
		d.Exec(change.sql)
		d.Exec("SELECT sexton.cancel_user_deletion(1, NULL)")
		require.Equal(t, [][]string{{change.state, change.email, "x"}},
			d.Rows("SELECT state, email, handle FROM accounts WHERE id = 1"))
	}
}

// Resolve reports a configuration of users, ghost user or lists that does not match the
// tables.
func TestUsersOfAnyTableAreChecked(t *testing.T) {
	t.Parallel()
	db := dbtest.WithAccounts(t, accounts("uuid"), anyUsers("uuid", ""),
		"ALTER TABLE accounts ADD code varchar(5) UNIQUE, ADD other uuid, ADD number uuid UNIQUE")
	for _, test := range []struct {
		change  func(*ghostuser.Lists)
		message string
	}{
		{func(l *ghostuser.Lists) { l.Users.Table = "people" }, "there is no table people in schema public"},
		{func(l *ghostuser.Lists) { l.Users.Key = "uid" }, "ghost_users.users.key: table accounts has no column uid"},
		{
			func(l *ghostuser.Lists) { l.Users.Key = "code" },
			"accounts.code is of type varchar; keys must be of type bigint, integer, uuid or text",
		},
		{func(l *ghostuser.Lists) { l.Users.Key = "other" }, "accounts.other has no unique index"},
		{
			func(l *ghostuser.Lists) { l.Users.Key = "number" },
			"the table users_ghost_user_migrations does not refer to accounts.number",
		},
		{
			func(l *ghostuser.Lists) { l.Users.Ghost = dbtest.Key("uuid", 77) },
			"ghost_users.ghost: table accounts has no row with the id",
		},
		{func(l *ghostuser.Lists) { l.Users.Ghost = "me" }, `ghost_users.ghost: "me" is not a value of type uuid`},
		{
			func(l *ghostuser.Lists) { l.Delete[0].Columns = []string{"id"} },
			"sessions.id is of type bigint, but accounts.id is of type uuid",
		},
		{
			func(l *ghostuser.Lists) { l.Nullify = nil },
			"documents.reviewer_id refers to accounts without an action (foreign key documents_reviewer_id_fkey), and no list contains it (" +
				"add {table: documents, columns: [reviewer_id]} to ghost_users.nullify, delete or move)",
		},
		{func(l *ghostuser.Lists) { l.Users = ghostuser.Users{} }, "there is no table users in schema public"},
	} {
		lists := anyLists("uuid")
		test.change(&lists)
		_, problems := resolve(t, db, lists)
		require.ErrorContains(t, problems.Err(), test.message)
	}
	_, problems := resolve(t, db, anyLists("uuid"))
	require.Empty(t, problems)
}

// Resolve with GitLab's users reports a queue that refers to another table. A queue
// without a foreign key is valid, because the application may have created it.
func TestQueueOfAnotherTableIsRefused(t *testing.T) {
	t.Parallel()
	d := dbtest.WithUsers(t, application, accounts("bigint"), "DROP TABLE members, groups")
	check := func() error {
		_, problems := resolve(t, d, ghostuser.Lists{})
		return problems.Err()
	}
	require.NoError(t, check())
	require.NoError(t, d.Migrate(t, anyUsers("bigint", "")))
	require.ErrorContains(t, check(),
		"the table users_ghost_user_migrations does not refer to users.id (run `sexton migrate up`)")
	require.NoError(t, d.Migrate(t, migrate.Users{}))
	require.NoError(t, check())
	d.Exec("ALTER TABLE users_ghost_user_migrations DROP CONSTRAINT users_ghost_user_migrations_user_id_fkey")
	require.NoError(t, check())
	d.Exec("ALTER TABLE users_ghost_user_migrations ALTER user_id TYPE text")
	require.ErrorContains(t, check(), "the table users_ghost_user_migrations does not refer to users.id")
}

// Find accepts every text form of a uuid key, and Foresee counts the rows of that user.
func TestForeseeWithAUUIDKey(t *testing.T) {
	t.Parallel()
	b := anyBundle(t, "uuid")
	p := plan(t, b.DB, anyLists("uuid"))
	user := pgtest.Must(p.Find(t.Context(), b.Pool(), strings.ToUpper("{"+dbtest.Key("uuid", 1)+"}")))(t)
	require.Equal(t, dml.ID{Text: dbtest.Key("uuid", 1)}, user)
	seen := pgtest.Must(p.Foresee(t.Context(), b.Pool(), user, false))(t)
	require.Equal(t, map[string]int64{"documents": 100}, seen.Moved)
	require.Equal(t, map[string]int64{"sessions": 100, "stars": 100}, seen.Deleted)
	_, err := p.Find(t.Context(), b.Pool(), dbtest.Key("uuid", 77))
	require.ErrorContains(t, err, "there is no user")
}

// A user with a text key is deleted in small statements, together with the rows below its
// rows.
func TestUserOfAnyTableWithTree(t *testing.T) {
	t.Parallel()
	b := anyBundle(t, "text", `CREATE TABLE parts (id bigint PRIMARY KEY, session_id bigint REFERENCES sessions ON DELETE CASCADE);
		CREATE INDEX ON parts (session_id);
		INSERT INTO parts SELECT n, n % 400 + 1 FROM generate_series(1, 4000) AS n;
		CREATE TABLE pairs (a text, b bigint, FOREIGN KEY (a) REFERENCES accounts ON DELETE CASCADE);
		ANALYZE`)
	b.engine.Sizes.Target = time.Millisecond
	b.Exec("SELECT sexton.delete_user($1, NULL)", dbtest.Key("text", 1))
	b.requireDone(t, b.run(t), 1)
	require.Equal(t, [][]string{{"3000", "300"}},
		b.Rows("SELECT (SELECT count(*) FROM parts), (SELECT count(*) FROM sessions)"))
}

// Runs whose session is killed after each batch delete all users in the end, and count
// each row once, for every type of key.
func TestKilledRunsOnUsersOfAnyTable(t *testing.T) {
	t.Parallel()
	for kind := range pgtest.Few(t, dbtest.Keys, "text") {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := anyBundle(t, kind)
			for n := 1; n <= 2; n++ {
				b.Exec("SELECT sexton.delete_user($1::"+kind+", NULL)", dbtest.Key(kind, n))
			}
			kills := 0
			for done := false; !done; {
				session, end := b.Session(t, leaseKey)
				b.engine = &ghostuser.Engine{
					Session: session, Plan: plan(t, b.DB, anyLists(kind)),
					Sizes: ghostuser.Sizes{Move: 40, Delete: 40, Nullify: 40},
				}
				kill := b.KillOnce(b.engine.Session.Conn)
				b.engine.Progress = func(context.Context, *ghostuser.Stats) { kill() }
				_, err := b.engine.Run(t.Context())
				end()
				if done = len(b.queued()) == 0; !done {
					require.Error(t, err)
				}
				if err != nil {
					kills++
				}
			}
			require.GreaterOrEqual(t, kills, 2*5*2)
			require.Equal(t, [][]string{{"100", "200", "200", "2"}}, b.Rows(`SELECT payload ->> 'moved', payload ->> 'deleted', payload ->> 'nullified', count(*)
				FROM sexton.events WHERE kind = 'user_destroyed' GROUP BY 1, 2, 3`))
			require.Equal(t, [][]string{{"200"}}, b.Rows("SELECT count(*) FROM documents WHERE author_id::text = $1",
				dbtest.Key(kind, 9)))
			require.Equal(t, [][]string{{"200"}},
				b.Rows("SELECT sum(jsonb_array_length(payload -> 'keys')) FROM sexton.events WHERE kind = 'files_orphaned'"))
			require.Equal(t, [][]string{{"200", "200", "200"}},
				b.Rows("SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM stars), (SELECT count(account_id) FROM notes)"))
		})
	}
}
