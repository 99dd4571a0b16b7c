package database_test

import (
	"bufio"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

func TestDirectSessionsHaveTheirOwnPath(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec("ALTER DATABASE " + pgx.Identifier{d.Name}.Sanitize() + " SET search_path = app")
	const exec = "&default_query_exec_mode=exec"
	type example struct{ url, direct, pool, single, triggers string }
	pgtest.Each(t, map[string]example{
		"direct":                             {d.URL, "", database.OwnPath, database.OwnPath, ""},
		"pooled and direct":                  {d.URL, d.URL, "app", database.OwnPath, ""},
		"pooled according to the query mode": {query(t, d.URL, exec), "", "app", "app", ""},
		"path in the URL": {
			query(t, d.URL, "&search_path=own,public"), "", database.OwnPath, database.OwnPath,
			"own,public",
		},
		"path in the URL, pooled": {query(t, d.URL, exec+"&search_path=own"), "", "app", "app", "own"},
		"path in the options": {
			query(t, d.URL, `&options=-c%20geqo%3Doff%20-csearch_path%3Down,%5C%20public`), "",
			database.OwnPath, database.OwnPath, "own, public",
		},
		"path in the options and as a parameter": {
			query(t, d.URL, `&options=--search_path%3Dlost&search_path=own`),
			query(t, d.URL, "&search_path=x"), "lost", database.OwnPath, "own",
		},
	}, func(t *testing.T, _ string, test example) {
		db := pgtest.Must(open(t.Context(), test.url, test.direct))(t)
		defer db.Close()
		path := pgtest.Scalar[string](t, db.Pool, "SHOW search_path")
		require.Equal(t, test.pool, path)
		single := pgtest.Must(pgx.ConnectConfig(t.Context(), db.Direct))(t)
		require.NoError(t, single.QueryRow(t.Context(), "SHOW search_path").Scan(&path))
		require.NoError(t, single.Close(t.Context()))
		require.Equal(t, test.single, path)
		require.Equal(t, test.triggers, db.Names.Path)
	})
}

// pooler answers every connection like pgbouncer answers a connection with an unknown
// start-up parameter.
func pooler(t *testing.T) string {
	listener := pgtest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	gone := make(chan struct{})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		<-gone
	})
	go func() {
		defer close(gone)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			backend := pgproto3.NewBackend(bufio.NewReader(conn), conn)
			if _, err := backend.ReceiveStartupMessage(); err == nil {
				backend.Send(&pgproto3.ErrorResponse{
					Severity: "FATAL", Code: "08P01",
					Message: "unsupported startup parameter: search_path",
				})
				_ = backend.Flush()
			}
			_ = conn.Close()
		}
	}()
	return "postgres://user@" + listener.Addr().String() + "/app?sslmode=disable"
}

func TestOpenThroughAPoolerThatRefusesSearchPath(t *testing.T) {
	t.Parallel()
	d, address := pgtest.New(t), pooler(t)
	e := refused(t, address, "")
	require.Equal(t, "unsupported startup parameter: search_path (SQLSTATE 08P01)", e.Reason)
	require.Equal(t,
		"it connects through a pooler; set databases.main.listen_url to a direct connection, or add default_query_exec_mode=exec to the url", e.Fix)
	e = refused(t, d.URL, address)
	require.Equal(t, "listen_url", e.Key)
	require.Equal(t, "it connects through a pooler; set it to a direct connection", e.Fix)
}

func TestWorkersCommitAsynchronouslyWithOneDatabase(t *testing.T) {
	t.Parallel()
	first, second := pgtest.New(t), pgtest.New(t)
	first.Exec("ALTER DATABASE " + first.Name + " SET synchronous_commit = 'local'")
	type wants struct{ own, waiting string }
	type example struct {
		urls   []string
		direct string
		want   wants
	}
	pgtest.Each(t, map[string]example{
		"one database":        {[]string{first.URL}, "", wants{"off", "local"}},
		"two databases":       {[]string{first.URL, second.URL}, "", wants{"local", ""}},
		"pooler":              {[]string{query(t, first.URL, "&default_query_exec_mode=exec")}, "", wants{"local", ""}},
		"pooler and listener": {[]string{first.URL}, second.URL, wants{"local", ""}},
	}, func(t *testing.T, _ string, test example) {
		databases := make([]database.Database, len(test.urls))
		for i, url := range test.urls {
			direct := ""
			if i == 0 {
				direct = test.direct
			}
			databases[i] = pgtest.Must(database.Open(t.Context(), "main", url, direct, pgcatalog.Names{}, 4))(t)
		}
		require.NoError(t, database.ForWork(t.Context(), databases))
		for i := range databases {
			t.Cleanup(databases[i].Close)
		}
		show := func(pool *pgxpool.Pool, setting string) (value string) {
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT coalesce(current_setting($1, true), '')",
				setting).Scan(&value))
			return value
		}
		db := databases[0]
		require.Equal(t, test.want, wants{
			show(db.Async(), "synchronous_commit"),
			show(db.Async(), "sexton.synchronous_commit"),
		})
		require.Equal(t, "local", show(db.Pool, "synchronous_commit"), "commits with an answer to an operator wait")
		require.NotEmpty(t, show(db.Sessions, "server_version"), "subscriptions connect")
	})
}

// With GenericPlan, Postgres plans a query with an array once. Without it, Postgres plans
// the query again for each array.
func TestGenericPlan(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.New(t).URL)
	const sql = "SELECT count(*) FROM pg_class WHERE oid = ANY ($1::oid[])"
	for range 10 {
		var n int
		require.NoError(t, database.After(t.Context(), conn, database.GenericPlan, sql, []uint32{1259, 1249}).Scan(&n))
		require.Equal(t, 2, n)
	}
	var generic, custom int
	require.NoError(t,
		conn.QueryRow(t.Context(),
			"SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement = $1", sql).Scan(&generic,
			&custom))
	require.Equal(t, 10, generic)
	require.Zero(t, custom)
	require.Equal(t, "auto", pgtest.Scalar[string](t, conn, "SHOW plan_cache_mode"), "the setting ends with the transaction")
	require.Error(t, database.After(t.Context(), conn, "1/0", sql, []uint32{}).Scan(new(int)))
	require.NoError(t, conn.Ping(t.Context()))
}

func TestConnectionLostBeforeTheStatementIsLost(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), d.URL)
	require.NoError(t, err)
	d.Terminate("pid = $1", conn.PgConn().PID())
	for range 2 { // The first statement detects the loss, and the second statement finds no connection.
		_, err = conn.Exec(t.Context(), "SELECT 1")
		require.True(t, database.Lost(err), "%v", err)
	}
	require.ErrorContains(t, err, "conn closed")
}

func TestProtocolViolationIsNotALostConnection(t *testing.T) {
	t.Parallel()
	require.False(t, database.Lost(&pgconn.PgError{Code: "08P01", SeverityUnlocalized: "ERROR"}), "an error of a server")
	require.True(t, database.Lost(&pgconn.PgError{Code: "08P01", Severity: "FATAL"}), "a pooler disconnects")
}
