package database_test

import (
	"bufio"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

const ownPath = "pg_catalog, pg_temp"

func TestDirectSessionsHaveTheirOwnPath(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec("ALTER DATABASE " + pgx.Identifier{d.Name}.Sanitize() + " SET search_path = app")
	const exec = "&default_query_exec_mode=exec"
	for name, test := range map[string]struct{ url, direct, pool, single, triggers string }{
		"direct":               {d.URL, "", ownPath, ownPath, ""},
		"pooled and direct":    {d.URL, d.URL, "app", ownPath, ""},
		"pooled by its mode":   {query(t, d.URL, exec), "", "app", "app", ""},
		"path in the url":      {query(t, d.URL, "&search_path=own,public"), "", ownPath, ownPath, "own,public"},
		"the same, pooled":     {query(t, d.URL, exec+"&search_path=own"), "", "app", "app", "own"},
		"path in the options":  {query(t, d.URL, `&options=-c%20geqo%3Doff%20-csearch_path%3Down,%5C%20public`), "", ownPath, ownPath, "own, public"},
		"path of both of them": {query(t, d.URL, `&options=--search_path%3Dlost&search_path=own`), query(t, d.URL, "&search_path=x"), "lost", ownPath, "own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
}

// pooler answers every connection as pgbouncer answers one with a start-up parameter that it does not know.
func pooler(t *testing.T) string {
	t.Helper()
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
				backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: search_path"})
				_ = backend.Flush()
			}
			_ = conn.Close()
		}
	}()
	return "postgres://user@" + listener.Addr().String() + "/app?sslmode=disable"
}

func TestPoolerThatRefusesThePath(t *testing.T) {
	t.Parallel()
	d, address := pgtest.New(t), pooler(t)
	e := refused(t, address, "")
	require.Equal(t, "unsupported startup parameter: search_path (SQLSTATE 08P01)", e.Reason)
	require.Equal(t, "it leads through a pooler; give databases.main.listen_url a direct connection, or add default_query_exec_mode=exec to the url", e.Fix)
	e = refused(t, d.URL, address)
	require.Equal(t, "listen_url", e.Key)
	require.Equal(t, "it leads through a pooler; give it a direct connection", e.Fix)
}
