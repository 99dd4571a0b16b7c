//go:build pooler

package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const poolerPort = "6432"

// Pooler starts pgbouncer in transaction mode and returns the given URL with pgbouncer's
// address. pgbouncer connects to the server as the URL's user, uses several server
// connections in turn, and starts each one with the default settings of that user.
func Pooler(tb testing.TB, server string) string {
	tb.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer" // Debian's path is not in the PATH of ordinary users.
	}
	require.FileExists(tb, path, "pgbouncer is needed; Debian and Ubuntu: apt-get install pgbouncer")
	// t.TempDir contains the test's name, which may be too long for the path of a socket.
	dir := Must(os.MkdirTemp("", "pooler"))(tb)
	tb.Cleanup(func() { require.NoError(tb, os.RemoveAll(dir)) })
	target := Must(pgx.ParseConfig(server))(tb)
	password := ""
	if target.Password != "" {
		password = " password=" + target.Password
	}
	settings := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(tb, os.WriteFile(settings, fmt.Appendf(nil, `[databases]
* = host=%s port=%d user=%s%s
[pgbouncer]
unix_socket_dir = %s
listen_port = %s
auth_type = any
pool_mode = transaction
server_round_robin = 1
ignore_startup_parameters = extra_float_digits
`, target.Host, target.Port, target.User, password, dir, poolerPort), 0o600))

	log := &Journal{}
	cmd := exec.CommandContext(tb.Context(), path, settings)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	if os.Geteuid() == 0 { // pgbouncer refuses to run as root.
		owner, ok := Must(os.Stat(target.Host))(tb).Sys().(*syscall.Stat_t)
		require.True(tb, ok)
		uid, gid := owner.Uid, owner.Gid
		require.NoError(tb, os.Chown(dir, int(uid), int(gid)))
		require.NoError(tb, os.Chown(settings, int(uid), int(gid)))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	require.NoError(tb, cmd.Start(), "start pgbouncer")
	Guard(tb, cmd.Process.Pid)
	tb.Cleanup(func() {
		_ = cmd.Wait() // The test's context has killed pgbouncer.
		if tb.Failed() {
			tb.Logf("log of pgbouncer:\n%s", log)
		}
	})

	address := Must(url.Parse(server))(tb)
	query := address.Query()
	query.Set("host", dir)
	query.Set("port", poolerPort)
	// The mode exec avoids prepared statements, which older versions of pgbouncer do not
	// support in transaction mode.
	query.Set("default_query_exec_mode", "exec")
	address.RawQuery = query.Encode()
	pooled := address.String()
	WaitFor(tb, "pgbouncer to accept connections", func(ctx context.Context) (bool, error) {
		conn, err := pgx.Connect(ctx, pooled)
		if err != nil {
			return false, nil //nolint:nilerr // It is not ready yet.
		}
		return true, conn.Close(ctx)
	})
	return pooled
}
