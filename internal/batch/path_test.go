package batch_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// auditTrigger creates a trigger on items that inserts into a table of the schema app
// without naming the schema.
const auditTrigger = `
CREATE SCHEMA app;
CREATE TABLE app.trail (item bigint);
CREATE FUNCTION app.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO trail VALUES (OLD.id); RETURN NULL; END $$;
CREATE TRIGGER note AFTER DELETE ON items FOR EACH ROW EXECUTE FUNCTION app.note();`

// connectAsProgram gives the session a connection with the settings of the program. path
// is the configured search_path of the application's triggers.
func connectAsProgram(t *testing.T, db *dbtest.DB, session *batch.Session, path string) {
	names := dbtest.Names()
	names.Path = path
	opened := pgtest.Must(database.Open(t.Context(), "main", db.URL, "", names, 2))(t)
	t.Cleanup(opened.Pool.Close)
	session.Conn, session.Names = pgtest.Acquire(t, opened.Pool).Conn(), opened.Names
}

func TestTriggersFindNamesByTheirOwnPath(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ configured, role, database string }{
		"configured":              {"app", "nowhere", "nowhere"},
		"setting of the role":     {"", "app, public", "nowhere"},
		"setting of the database": {"", "", "app"},
		"setting of the database, if the role has Sexton's path": {"", database.OwnPath, "app"},
		"configured with quotes":                                 {`"$user" , "app"`, "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, session := setup(t)
			db.Exec(auditTrigger)
			name := pgx.Identifier{db.Name}.Sanitize()
			if test.role != "" {
				db.Exec("ALTER ROLE CURRENT_USER IN DATABASE " + name + " SET search_path = " + test.role)
			}
			if test.database != "" {
				db.Exec("ALTER DATABASE " + name + " SET search_path = " + test.database)
			}
			connectAsProgram(t, db, session, test.configured)
			for id := range 2 { // The second batch uses the prepared statements of the first.
				pgtest.Must(session.Run(t.Context(), batch.Statement{
					SQL:  "DELETE FROM public.items WHERE id = $1",
					Args: []any{id + 1},
				}))(t)
			}
			require.EqualValues(t, 2, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM app.trail"))
			path := pgtest.Scalar[string](t, session.Conn, "SHOW search_path")
			require.Equal(t, database.OwnPath, path, "the path is reset after the batch")
		})
	}
}

// Sexton's own statements run under the pinned path, even if the connection begins with
// another path. Through a transaction pooler, a connection does so if its role lacks the
// setting search_path.
func TestOwnStatementsRunUnderThePinnedPath(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	settings := session.Conn.Config()
	settings.DefaultQueryExecMode = pgx.QueryExecModeExec
	session.Conn, session.Names.Path = pgtest.ConnectAs(t, settings), "app"
	var path string
	query := batch.Statement{SQL: "SELECT pg_catalog.current_setting('search_path')", Scan: batch.One(&path)}
	for range 2 {
		pgtest.Must(session.RunOwn(t.Context(), query))(t)
		require.Equal(t, database.OwnPath, path)
		pgtest.Must(session.Run(t.Context(), query))(t)
		require.Equal(t, "app", path)
	}
	found := pgtest.Must(batch.Blocker(t.Context(), db.Pool(), dbtest.Names(), session.Fence.Key(),
		session.Fence.Token()))(t)
	require.Empty(t, found)
}

// A connection reads the application's search_path again after pathTTL, so that it uses a
// changed setting of the database.
func TestPathIsReadAgain(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	connectAsProgram(t, db, session, "")
	path := func() (path string) {
		_, err := session.Run(t.Context(), batch.Statement{
			SQL: "SELECT pg_catalog.current_setting('search_path')",
			Scan: func(rows pgx.Rows) (err error) {
				path, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
				return err
			},
		})
		require.NoError(t, err)
		return path
	}
	before := path()
	db.Exec("ALTER DATABASE " + pgx.Identifier{db.Name}.Sanitize() + " SET search_path = app")
	require.Equal(t, before, path())
	batch.AgePath(session.Conn)
	require.Equal(t, "app", path())
	require.Equal(t, "app", path())
}

// A connection whose prepared statements were dropped prepares them again and reads the
// path again.
func TestPathIsReadAgainAfterLostStatements(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	db.Exec(auditTrigger)
	connectAsProgram(t, db, session, "app")
	remove := func(id int) {
		pgtest.Must(session.Run(t.Context(), batch.Statement{
			SQL:  "DELETE FROM public.items WHERE id = $1",
			Args: []any{id},
		}))(t)
	}
	remove(1)
	lost := pgtest.Scalar[string](t, session.Conn, "SELECT name FROM pg_prepared_statements WHERE statement LIKE $1",
		"%application_path%")
	pgtest.Exec(t, session.Conn, "DEALLOCATE "+pgx.Identifier{lost}.Sanitize())
	batch.AgePath(session.Conn)
	remove(2)
	require.EqualValues(t, 2, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM app.trail"))
}

func TestTriggersFindNamesInPublicByDefault(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	connectAsProgram(t, db, session, "")
	var path string
	_, err := session.Run(t.Context(), batch.Statement{
		SQL: "SELECT pg_catalog.current_setting('search_path')",
		Scan: func(rows pgx.Rows) (err error) {
			path, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
			return err
		},
	})
	require.NoError(t, err)
	require.Equal(t, `"$user", public`, path)
}

func TestPathErrorOfATriggerNamesTheKey(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	db.Exec(auditTrigger)
	connectAsProgram(t, db, session, "")
	_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM public.items WHERE id = 1"})
	require.ErrorContains(t, err, `relation "trail" does not exist`)
	require.ErrorContains(t, err, "databases.<name>.search_path")
	db.Exec("ALTER DATABASE " + pgx.Identifier{db.Name}.Sanitize() + " SET search_path = app")
	_, err = session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM public.items WHERE id = 1"})
	require.NoError(t, err, "the same connection uses the changed path")
	_, err = session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM public.nothing"})
	require.ErrorContains(t, err, `relation "public.nothing" does not exist`)
	require.NotContains(t, err.Error(), "search_path", "the hint is only for errors in functions")
}

// connectAsPsql opens a connection with the application_name psql.
func connectAsPsql(t *testing.T, url string) *pgx.Conn {
	return pgtest.Connect(t, url+"&application_name=psql")
}

// blockerOf runs a DELETE that must wait for a lock, and returns its blocker. It calls
// release when the blocker is known.
func blockerOf(t *testing.T, db *dbtest.DB, session *batch.Session, release func()) string {
	ended := make(chan error, 1)
	go func() {
		_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM items"})
		ended <- err
	}()
	var blocker string
	pgtest.WaitFor(t, "the batch to wait for a lock", func(ctx context.Context) (found bool, err error) {
		blocker, err = session.Blocker(ctx, db.Pool())
		return blocker != "", err
	})
	release()
	require.NoError(t, <-ended)
	return blocker
}

func TestBlockerNamesTheHolderOfARowOrTable(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"row":   "SELECT FROM items WHERE id = 7 FOR UPDATE",
		"table": "LOCK TABLE items IN ACCESS EXCLUSIVE MODE",
	}, func(t *testing.T, kind string, sql string) {
		db, session := setup(t)
		blocker := pgtest.Must(session.Blocker(t.Context(), db.Pool()))(t)
		require.Empty(t, blocker)

		holder := connectAsPsql(t, db.URL)
		pgtest.Exec(t, holder, "BEGIN")
		pgtest.Exec(t, holder, sql)
		since := pgtest.Scalar[string](t, holder, `SELECT to_char(now() AT TIME ZONE 'UTC', 'HH24:MI:SS"Z"')`)
		blocker = blockerOf(t, db, session, func() { pgtest.Exec(t, holder, "COMMIT") })
		require.Equal(t, fmt.Sprintf("%s locked by pid %d (psql) since %s", kind, holder.PgConn().PID(), since),
			blocker)

		blocker = pgtest.Must(session.Blocker(t.Context(), db.Pool()))(t)
		require.Empty(t, blocker)
	})
}

func TestBlockerMayBeAPreparedTransaction(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	holder := connectAsPsql(t, db.URL)
	name := "'" + db.Name + "'"
	pgtest.Exec(t, holder, "BEGIN")
	pgtest.Exec(t, holder, "UPDATE items SET parent = 0 WHERE id = 7")
	pgtest.Exec(t, holder, "PREPARE TRANSACTION "+name)
	blocker := blockerOf(t, db, session, func() { pgtest.Exec(t, holder, "ROLLBACK PREPARED "+name) })
	require.Equal(t, "row locked by a prepared transaction", blocker)
}

// Blocker returns the process ID and program of a lock holder if the role lacks
// pg_read_all_stats, which hides the start of the transaction. The batch and the query
// for its blocker have the same role.
func TestBlockerIsNamedWithoutPrivileges(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	role := db.CreateRole()
	db.Exec("GRANT USAGE ON SCHEMA public, sexton TO " + role +
		"; GRANT ALL ON ALL TABLES IN SCHEMA public, sexton TO " + role +
		"; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO " + role)
	session.Conn = connectAsPsql(t, db.AsRole(role))
	pool := pgtest.Must(pgxpool.New(t.Context(), db.AsRole(role)))(t)
	t.Cleanup(pool.Close)
	holder := connectAsPsql(t, db.URL)
	pgtest.Exec(t, holder, "BEGIN")
	pgtest.Exec(t, holder, "SELECT FROM items WHERE id = 7 FOR UPDATE")
	ended := make(chan error, 1)
	go func() {
		_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM items"})
		ended <- err
	}()
	var blocker string
	pgtest.WaitFor(t, "the batch to wait for a lock", func(ctx context.Context) (found bool, err error) {
		blocker, err = session.Blocker(ctx, pool)
		return blocker != "", err
	})
	pgtest.Exec(t, holder, "COMMIT")
	require.NoError(t, <-ended)
	require.Equal(t, fmt.Sprintf("row locked by pid %d (psql)", holder.PgConn().PID()), blocker)
}

// Blocker stops waiting for a connection when its context ends, for example because the
// batch has ended.
func TestBlockerDoesNotWaitForAConnection(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	config := pgtest.Must(pgxpool.ParseConfig(db.URL))(t)
	config.MaxConns = 1
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(pool.Close)
	pgtest.Acquire(t, pool)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := session.Blocker(ctx, pool)
		ended <- err
	}()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// SessionPool leaves two connections in the pool, and Release returns all of its
// connections.
func TestSessionPoolSparesConnections(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	session, end := db.Session(t, "one")
	more := &batch.SessionPool{Pool: db.Pool(), First: session}
	var got int32
	for s := more.Session(t.Context()); s != nil; s = more.Session(t.Context()) {
		require.Equal(t, []any{session.Fence, session.Names, session.Limits}, []any{s.Fence, s.Names, s.Limits})
		require.EqualValues(t, got+1, s.Slot, "each session locks its own row of the fence")
		pgtest.Must(s.Run(t.Context(), batch.Statement{SQL: "SELECT 1"}))(t)
		got++
	}
	stat := db.Pool().Stat()
	require.Equal(t, stat.MaxConns()-3, got, "the pool keeps two connections, and the first session has one")
	more.Release()
	end()
	require.Zero(t, db.Pool().Stat().AcquiredConns())
}

// Took of a further session measures the server's time in its first batch. On a
// connection with prepared statements that batch is the first round trip, and its
// duration must not count as the time of the network.
func TestFurtherSessionsMeasureServerTime(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	session, end := db.Session(t, "one")
	defer end()
	pgtest.Must(session.Run(t.Context(), batch.Statement{SQL: "SELECT 1"}))(t)
	for range 2 {
		more := &batch.SessionPool{Pool: db.Pool(), First: session}
		s := more.Session(t.Context())
		require.NotNil(t, s)
		pgtest.Must(s.Run(t.Context(), batch.Statement{SQL: "SELECT count(*) FROM generate_series(1, 200000)"}))(t)
		require.Positive(t, s.Took())
		more.Release()
	}
}
