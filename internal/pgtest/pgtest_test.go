package pgtest_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// memberVariable makes this test binary run Join instead of its tests.
const memberVariable = "PGTEST_TEST_MEMBER"

func TestMain(m *testing.M) {
	if os.Getenv(memberVariable) != "" {
		_ = os.Unsetenv(memberVariable) // The keeper that Join starts must not run Join.
		os.Exit(pgtest.Join())
	}
	pgtest.Main(m)
}

func TestNew(t *testing.T) {
	t.Parallel()
	a, b := pgtest.New(t), pgtest.New(t)
	require.NotEqual(t, a.Name, b.Name)
	a.Exec("CREATE TABLE t (id int); INSERT INTO t VALUES (1), (NULL)")
	require.Equal(t, [][]string{{"1", "f"}, {"NULL", "t"}}, a.Rows("SELECT id, id IS NULL FROM t ORDER BY id"))
	require.Equal(t, [][]string{{"7", "{a,b}"}}, a.Rows("SELECT $1::int, $2::text[]", 7, []string{"a", "b"}))
	require.Equal(t, [][]string{}, a.Rows("SELECT 1 WHERE false"))
	require.False(t, pgtest.Scalar[bool](t, b, "SELECT to_regclass('t') IS NOT NULL"),
		"databases must not share tables")
	require.Equal(t, "UTF8", pgtest.Scalar[string](t, b, "SHOW server_encoding"))
}

func TestDatabaseIsDroppedAfterTheTest(t *testing.T) {
	t.Parallel()
	watcher := pgtest.New(t)
	var name, role string
	t.Run("user", func(t *testing.T) {
		d := pgtest.New(t)
		name, role = d.Name, d.CreateRole()
		d.Exec("CREATE TABLE t (id int); ALTER TABLE t OWNER TO " + role)
		// The connection stays open on purpose: an open connection of a failed test must
		// not prevent the drop of its database.
		pgtest.Must(pgx.Connect(t.Context(), d.URL))(t)
	})
	require.Equal(t, int64(0), pgtest.Scalar[int64](t, watcher,
		"SELECT (SELECT count(*) FROM pg_database WHERE datname = $1) + (SELECT count(*) FROM pg_roles WHERE rolname = $2)",
		name, role))
}

func TestRoleMayOnlyLogIn(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec("CREATE TABLE secret (id int)")
	role := d.CreateRole()
	conn := pgtest.Connect(t, d.AsRole(role))
	require.Equal(t, role, pgtest.Scalar[string](t, conn, "SELECT current_user::text"))
	_, err := conn.Exec(t.Context(), "SELECT * FROM secret")
	require.ErrorContains(t, err, "permission denied")
}

func TestFromTemplateBuildsOnce(t *testing.T) {
	t.Parallel()
	var builds atomic.Int32
	build := func(ctx context.Context, url string) error {
		builds.Add(1)
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		// The connection stays open on purpose, because open connections to a template
		// must not prevent copying it.
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		_, err = conn.Exec(ctx, "CREATE TABLE t AS SELECT 1 AS id")
		return err
	}
	a := pgtest.FromTemplate(t, "once", build)
	b := pgtest.FromTemplate(t, "once", build)
	a.Exec("DELETE FROM t")
	require.Equal(t, int64(1), pgtest.Scalar[int64](t, b, "SELECT count(*) FROM t"), "copies must be independent")
	require.Equal(t, int32(1), builds.Load())
}

func TestServerCanBeRestarted(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	before := server.PID()
	require.NoError(t, server.Restart(t.Context(), devpg.Immediate))
	require.NotEqual(t, before, server.PID())
	require.NoError(t, pgtest.Must(pgx.Connect(t.Context(), server.URL("postgres")))(t).Close(t.Context()))
}

func TestWaitForPollsUntilTrue(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec("CREATE SEQUENCE polls")
	pgtest.WaitFor(t, "the third poll", func(ctx context.Context) (bool, error) {
		var n int64
		err := d.Pool().QueryRow(ctx, "SELECT nextval('polls')").Scan(&n)
		return n == 3, err
	})
	require.Equal(t, int64(4), pgtest.Scalar[int64](t, d, "SELECT nextval('polls')"))
}
