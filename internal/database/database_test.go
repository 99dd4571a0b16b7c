package database_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/devpg"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// open opens the database main with three connections.
func open(ctx context.Context, url, direct string) (database.Database, error) {
	return database.Open(ctx, "main", url, direct, pgcatalog.Names{Tracked: "public"}, 3)
}

// secret is the password in every connection string that must fail.
const secret = "hunter2"

func TestOpen(t *testing.T) {
	t.Parallel()
	db := pgtest.Must(open(t.Context(), query(t, pgtest.New(t).URL, "&pool_max_conns=1"), ""))(t)
	defer db.Close()
	require.Equal(t, "main", db.Name)
	require.Equal(t, pgcatalog.Names{Tracked: "public"}, db.Names)
	require.EqualValues(t, 3, db.Pool.Config().MaxConns)
	application := pgtest.Scalar[string](t, db.Pool, "SHOW application_name")
	require.Equal(t, "sexton", application)

	direct, err := pgx.ConnectConfig(t.Context(), db.Direct)
	require.NoError(t, err, "the settings of the pool are not sent to the server")
	require.NoError(t, direct.QueryRow(t.Context(), "SHOW application_name").Scan(&application))
	require.NoError(t, direct.Close(t.Context()))
	require.Equal(t, "sexton", application)
}

// Sessions return texts in UTF-8 under any default client_encoding. In a SQL_ASCII
// database, texts are not converted.
func TestEncodingOfSessions(t *testing.T) {
	t.Parallel()
	for database, want := range map[string]string{"UTF8": "UTF8", "LATIN1": "UTF8", "SQL_ASCII": "SQL_ASCII"} {
		d := pgtest.NewEncoded(t, database)
		d.Exec("ALTER DATABASE " + pgx.Identifier{d.Name}.Sanitize() + " SET client_encoding = 'LATIN1'")
		db := pgtest.Must(open(t.Context(), query(t, d.URL, "&client_encoding=WIN1252"), d.URL))(t)
		t.Cleanup(db.Close)
		require.Equal(t, want, pgtest.Scalar[string](t, db.Pool, "SHOW client_encoding"), database)
		require.Equal(t, want, pgtest.Scalar[string](t, db.Sessions, "SHOW client_encoding"), database)
		require.Equal(t, want, db.Direct.RuntimeParams["client_encoding"], database)
	}
}

// If the server of an open database becomes a standby, WriteRefusal returns a reason.
func TestWriteRefusal(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	db := pgtest.Must(open(t.Context(), server.URL("postgres"), ""))(t)
	defer db.Close()
	require.Empty(t, pgtest.Must(db.WriteRefusal(t.Context()))(t))
	_, err := db.Pool.Exec(t.Context(), "ALTER SYSTEM SET default_transaction_read_only = on")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(server.DataDir(), "standby.signal"), nil, 0o600))
	require.NoError(t, server.Restart(t.Context(), devpg.Fast))
	db.Pool.Reset()
	require.Equal(t, "its server is a standby (in recovery)", pgtest.Must(db.WriteRefusal(t.Context()))(t))
	require.NoError(t, os.Remove(filepath.Join(server.DataDir(), "standby.signal")))
	require.NoError(t, server.Restart(t.Context(), devpg.Fast))
	db.Pool.Reset()
	require.Equal(t, "default_transaction_read_only is on", pgtest.Must(db.WriteRefusal(t.Context()))(t))
}

func TestOpenKeepsSettingsOfTheConnectionString(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := pgtest.Must(open(t.Context(), query(t, d.URL, "&application_name=mine&connect_timeout=7"),
		query(t, d.URL, "&application_name=direct")))(t)
	defer db.Close()
	require.Equal(t, "sexton mine", db.Pool.Config().ConnConfig.RuntimeParams["application_name"])
	require.Equal(t, "sexton direct", db.Direct.RuntimeParams["application_name"])
	require.Equal(t, "7s", db.Pool.Config().ConnConfig.ConnectTimeout.String())
	require.Equal(t, "5s", db.Direct.ConnectTimeout.String())
}

// refused opens a database, requires an *UnreachableError, and returns it.
func refused(t *testing.T, url, direct string) *database.UnreachableError {
	db, err := open(t.Context(), url, direct)
	require.NotNil(t, db.Pool, "the pool can connect later")
	defer db.Close()
	var unreachable *database.UnreachableError
	require.ErrorAs(t, err, &unreachable)
	require.Equal(t, "main", unreachable.Database)
	require.ErrorContains(t, err, "database main cannot be reached: "+unreachable.Reason+" ("+unreachable.Fix+")")
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), unreachable.Err.Error()} {
		require.NotContains(t, text, secret)
	}
	return unreachable
}

// edit changes the parts of a connection string.
func edit(t *testing.T, address string, change func(u *url.URL)) string {
	u := pgtest.Must(url.Parse(address))(t)
	change(u)
	return u.String()
}

// query adds parameters such as "&connect_timeout=7" to a connection string.
func query(t *testing.T, address, parameters string) string {
	return edit(t, address, func(u *url.URL) { u.RawQuery += parameters })
}

func TestOpenExplainsRefusals(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	role := d.CreateRole()
	quoted, name := pgx.Identifier{role}.Sanitize(), pgx.Identifier{d.Name}.Sanitize()

	e := refused(t, edit(t, d.URL, func(u *url.URL) { u.Path = "/no_such_database" }), "")
	require.Equal(t, `database "no_such_database" does not exist`, e.Reason)
	require.Equal(t, "create it, or correct the database's name", e.Fix)
	require.Equal(t, "url", e.Key)

	d.Exec("ALTER DATABASE " + name + " CONNECTION LIMIT 0")
	e = refused(t, d.AsRole(role), "")
	require.Equal(t, fmt.Sprintf("too many connections for database %q", d.Name), e.Reason)
	require.Contains(t, e.Fix, "raise max_connections or the limit of the database or user")
	d.Exec("ALTER DATABASE " + name + " CONNECTION LIMIT -1")

	d.Exec("REVOKE CONNECT ON DATABASE " + name + " FROM PUBLIC")
	e = refused(t, d.AsRole(role), "")
	require.Equal(t, fmt.Sprintf("permission denied for database %q", d.Name), e.Reason)
	require.Equal(t, "GRANT CONNECT on the database to user "+role, e.Fix)

	d.Exec("ALTER ROLE " + quoted + " NOLOGIN")
	e = refused(t, d.AsRole(role), "")
	require.Equal(t, fmt.Sprintf("role %q is not permitted to log in", role), e.Reason)
	require.Contains(t, e.Fix, "let it log in")

	e = refused(t, query(t, d.URL, "&search_patch=x"), "")
	require.Equal(t, `unrecognized configuration parameter "search_patch" (SQLSTATE 42704)`, e.Reason)

	e = refused(t, d.URL, edit(t, d.URL, func(u *url.URL) { u.Path = "/no_such_database" }))
	require.Equal(t, "listen_url", e.Key)
	require.Equal(t, `database "no_such_database" does not exist`, e.Reason)
}

func TestOpenWithWrongPassword(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	hba := "local all guarded scram-sha-256\nlocal postgres postgres trust\n"
	require.NoError(t, os.WriteFile(filepath.Join(server.DataDir(), "pg_hba.conf"), []byte(hba), 0o600))
	require.NoError(t, server.Restart(t.Context(), devpg.Fast))
	conn := pgtest.Must(pgx.Connect(t.Context(), server.URL("postgres")))(t)
	pgtest.Exec(t, conn, "CREATE ROLE guarded LOGIN PASSWORD 'right'")

	guarded := func(password string) string {
		return edit(t, server.URL("postgres"), func(u *url.URL) { u.User = url.UserPassword("guarded", password) })
	}
	e := refused(t, guarded(secret), "")
	require.Equal(t, `password authentication failed for user "guarded"`, e.Reason)
	require.Equal(t, "correct user and password", e.Fix)

	stranger := edit(t, server.URL("postgres"), func(u *url.URL) { u.User = url.UserPassword("stranger", secret) })
	e = refused(t, stranger, "")
	require.Contains(t, e.Reason, `no pg_hba.conf entry for host "[local]", user "stranger"`)
	require.Contains(t, e.Fix, "pg_hba.conf")

	pgtest.Must(open(t.Context(), guarded("right"), ""))(t).Close()

	// A smart shutdown waits for the session above and refuses new sessions.
	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGTERM))
	pgtest.WaitFor(t, "the server to shut down", func(ctx context.Context) (bool, error) {
		db, err := open(ctx, guarded("right"), "")
		if db.Pool != nil {
			db.Close()
		}
		return err != nil, nil
	})
	e = refused(t, guarded("right"), "")
	require.Equal(t, "the database system is shutting down", e.Reason)
	require.Contains(t, e.Fix, "wait")
	require.NoError(t, conn.Close(t.Context()))
}

func TestOpenWithoutServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := refused(t, "postgres://user:"+secret+"@/app?port=5433&host="+dir, "")
	require.Equal(t, "no server answers at "+dir+" port 5433: no such file or directory", e.Reason)
	require.Equal(t, "start it, or correct host and port", e.Fix)

	e = refused(t, "postgres://user:"+secret+"@no-such-host.invalid/app", "")
	require.Equal(t, "host no-such-host.invalid cannot be found", e.Reason)

	// No other test listens on a port below 1024, because such ports are never assigned
	// at random.
	e = refused(t, "postgres://user:"+secret+"@127.0.0.1:1/app", "")
	require.Equal(t, "no server answers at 127.0.0.1 port 1: connection refused", e.Reason)
}

func TestOpenAnotherServerThanPostgres(t *testing.T) {
	t.Parallel()
	listener := pgtest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = conn.Close()
		}
	}()
	e := refused(t, fmt.Sprintf("postgres://user:%s@%s/app?sslmode=require", secret, listener.Addr()), "")
	require.Contains(t, e.Reason, "the connection to 127.0.0.1 port ")
	require.NotContains(t, e.Reason, "\n")
	require.Equal(t, "correct host, port and sslmode", e.Fix)
	require.NoError(t, listener.Close())
	<-gone
}

func TestOpenGivesUpOnASilentServer(t *testing.T) {
	t.Parallel()
	// Connections wait in the backlog, because the listener never accepts them.
	listener := pgtest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { require.NoError(t, listener.Close()) }()
	e := refused(t, fmt.Sprintf("postgres://user:%s@%s/app?connect_timeout=1&sslmode=disable", secret, listener.Addr()),
		"")
	require.Regexp(t, `^no answer from 127\.0\.0\.1 port \d+ within 1s$`, e.Reason)
}

func TestOpenWithMalformedConnectionString(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	for _, address := range []string{
		"postgres://user:" + secret + "@host:port/app", "postgres://user:" + secret + "@/app?pool_max_conns=" + secret,
		"password=" + secret + " port=x",
	} {
		_, err := open(t.Context(), address, "")
		var settings *database.SettingsError
		require.ErrorAs(t, err, &settings)
		require.Equal(t, database.SettingsError{Database: "main", Key: "url"}, *settings)
		require.EqualError(t, err, "the url of database main cannot be parsed")
		_, err = open(t.Context(), d.URL, address)
		require.EqualError(t, err, "the listen_url of database main cannot be parsed")
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, direct := range []string{"", d.URL} {
		_, err := open(ctx, d.URL, direct)
		require.ErrorIs(t, err, context.Canceled)
		var unreachable *database.UnreachableError
		require.NotErrorAs(t, err, &unreachable, "an ended context is not an error of the database")
	}
}

func TestLockTimeout(t *testing.T) {
	t.Parallel()

	d := pgtest.New(t)
	for url, want := range map[string]string{
		d.URL:                                   "7s",
		d.URL + "&lock_timeout=3s":              "3s",
		d.URL + "&default_query_exec_mode=exec": "0",
	} {
		db := pgtest.Must(database.Open(t.Context(), "main", url, "", pgcatalog.Names{}, 2,
			database.LockTimeout(7*time.Second)))(t)
		var got string
		err := db.Pool.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&got)
		db.Close()
		require.NoError(t, err)
		require.Equal(t, want, got, "the option does not apply to a pooler or override the URL")
	}
}

// Write resets session settings that an application's trigger has changed, on a
// connection of a pool and on a single connection.
func TestSettingsOfTriggersEndWithTheTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(`CREATE TABLE items (id bigint);
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	PERFORM set_config('default_transaction_read_only', 'on', false), set_config('search_path', 'elsewhere, pg_catalog', false);
	RETURN NULL;
END$$;
CREATE CONSTRAINT TRIGGER meddle AFTER INSERT ON items DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION meddle()`)
	pool := pgtest.Must(database.Open(t.Context(), "main", db.URL, "", pgcatalog.Names{}, 1))(t)
	defer pool.Close()
	single := pgtest.Connect(t, db.URL)
	for _, on := range []database.Beginner{pool.Pool, single} {
		path := func() (path string) {
			require.NoError(t, database.Write(t.Context(), on, func(tx pgx.Tx) error {
				return tx.QueryRow(t.Context(), "SELECT pg_catalog.current_setting('search_path')").Scan(&path)
			}))
			return path
		}
		before := path()
		for range 2 {
			require.NoError(t, database.Write(t.Context(), on, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "INSERT INTO public.items VALUES (1)")
				return err
			}))
			require.Equal(t, before, path())
		}
	}
}
