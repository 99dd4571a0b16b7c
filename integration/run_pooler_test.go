//go:build pooler

package integration

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

const poolerPort = "6432"

// startPooler starts pgbouncer in transaction mode in front of a private server and returns a URL through it.
// Each transaction gets another session of the server where there is one. It runs in the server's folder and as the server's user, since it refuses to run as root.
func startPooler(t *testing.T, server *devpg.Server) string {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer" // Where ordinary users do not look.
	}
	require.FileExists(t, path, "pgbouncer is needed; Debian and Ubuntu: apt-get install pgbouncer")
	dir := server.SocketDir()
	settings := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(settings, []byte(fmt.Sprintf(`[databases]
* = host=%[1]s port=5432 user=postgres
[pgbouncer]
unix_socket_dir = %[1]s
listen_port = %[2]s
auth_type = any
pool_mode = transaction
server_round_robin = 1
ignore_startup_parameters = extra_float_digits
`, dir, poolerPort)), 0o600))

	log := &pgtest.Journal{}
	cmd := exec.CommandContext(t.Context(), path, settings)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if os.Geteuid() == 0 {
		owner, ok := pgtest.Must(os.Stat(dir))(t).Sys().(*syscall.Stat_t)
		require.True(t, ok)
		require.NoError(t, os.Chown(settings, int(owner.Uid), int(owner.Gid)))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	require.NoError(t, cmd.Start(), "start pgbouncer")
	guard(t, cmd.Process.Pid)
	t.Cleanup(func() {
		_ = cmd.Wait() // The test's context has killed it.
		if t.Failed() {
			t.Logf("log of pgbouncer:\n%s", log)
		}
	})
	address := pgtest.Must(url.Parse(server.URL("postgres")))(t)
	query := address.Query()
	query.Set("port", poolerPort)
	// Prepared statements do not work through this version in this mode.
	query.Set("default_query_exec_mode", "exec")
	address.RawQuery = query.Encode()
	s := address.String()
	pgtest.WaitFor(t, "pgbouncer to answer", func(ctx context.Context) (bool, error) {
		conn, err := pgx.Connect(ctx, s)
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		return true, conn.Close(ctx)
	})
	return s
}

// testRunPooler runs a worker whose only way to the server is a transaction pooler: LISTEN delivers nothing.
func testRunPooler(t *testing.T, p program) {
	server := pgtest.Server(t)
	s := p.site(t, server.URL("postgres"), gated())
	// A trigger that finds its table by the path of the sessions that the application has.
	s.exec(t, `CREATE SCHEMA app; CREATE TABLE app.trail (child bigint); ALTER DATABASE postgres SET search_path = app, public;
		CREATE FUNCTION app.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO trail VALUES (OLD.id); RETURN NULL; END $$;
		CREATE TRIGGER note AFTER DELETE ON children FOR EACH ROW EXECUTE FUNCTION app.note()`)
	s.exec(t, "ALTER ROLE postgres SET search_path = pg_catalog, pg_temp")
	pooled := s
	pooled.url = startPooler(t, server)
	w := pooled.started(t)
	const complaint = "notifications do not arrive, polling instead"
	w.logged(t, complaint)
	for id := 1; id <= 5; id++ {
		s.exec(t, "DELETE FROM parents WHERE id = $1", id)
		s.wait(t, time.Minute, "the children to be gone", noWork)
	}
	w.stop(t)
	require.NotZero(t, s.count(t, "SELECT count(*) FROM app.trail"))
	require.Equal(t, 1, strings.Count(w.log.String(), complaint), "it says so once")
	s.cleanedUp(t)

	// What a session keeps would be the next client's of the pooler.
	require.Zero(t, s.count(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), "locks left in the pooler's connections")
	for range 10 {
		conn := connect(t, pooled.url)
		var timeout string
		_, err := conn.Exec(t.Context(), "BEGIN") // Until the end of the test: each gets another connection of the pooler.
		require.NoError(t, err)
		require.NoError(t, conn.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&timeout))
		require.Equal(t, "0", timeout, "a setting left in the pooler's connections")
		path := pgtest.Scalar[string](t, conn, "SHOW search_path")
		require.Equal(t, "pg_catalog, pg_temp", path, "a path left in the pooler's connections")
	}
}

// testRunPoolerListenURL gives the worker a direct connection beside the pooler. See testRunWakes for how the
// deadline tells notifications from polling.
func testRunPoolerListenURL(t *testing.T, p program) {
	server := pgtest.Server(t)
	s := p.site(t, server.URL("postgres"), gated())
	pooled := s
	pooled.url = startPooler(t, server)
	w := pooled.started(t, "SEXTON_DATABASES__MAIN__LISTEN_URL="+s.url)
	deadline := time.Now().Add(80 * time.Second)
	for id := 1; id <= 10; id++ {
		s.sleeps(t)
		s.exec(t, "DELETE FROM parents WHERE id = $1", id)
		s.wait(t, time.Until(deadline), "the children to be gone", noWork)
	}
	w.stop(t)
	require.NotContains(t, w.log.String(), "notifications do not arrive")
	s.cleanedUp(t)
}

// TestPooler needs pgbouncer, which go test ./... must do without: go test -tags pooler ./integration -run TestPooler
func TestPooler(t *testing.T) {
	t.Parallel()
	p := build(t)
	t.Run("run through a transaction pooler", func(t *testing.T) { t.Parallel(); testRunPooler(t, p) })
	t.Run("run beside a transaction pooler", func(t *testing.T) { t.Parallel(); testRunPoolerListenURL(t, p) })
}
