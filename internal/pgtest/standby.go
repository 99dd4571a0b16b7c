package pgtest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
)

// NewOn is New on a private server.
func NewOn(tb testing.TB, server *devpg.Server) *Database {
	tb.Helper()
	base, err := url.Parse(server.URL("postgres"))
	require.NoError(tb, err)
	private := &process{inMain: true, started: true, base: base}
	return private.create(tb, "template0")
}

// Standby starts a streaming standby of a private server under this application_name and stops it when the test ends.
func Standby(tb testing.TB, primary *devpg.Server, name string) *devpg.Server {
	tb.Helper()
	// Not the test's own folder, whose name may be too long for a socket's.
	dir, err := os.MkdirTemp("", "sexton-standby-")
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, os.RemoveAll(dir)) })
	info, err := os.Stat(primary.DataDir())
	require.NoError(tb, err)
	owner, ok := info.Sys().(*syscall.Stat_t)
	require.True(tb, ok, "the data folder has an owner")
	// The log is this process's, which may be root, and a backup copies all files.
	for _, path := range []string{dir, filepath.Join(primary.DataDir(), "server.log")} {
		require.NoError(tb, os.Chown(path, int(owner.Uid), int(owner.Gid)))
	}

	data := filepath.Join(dir, "data")
	conninfo := fmt.Sprintf("host='%s' port=5432 user='%s' application_name='%s'", primary.SocketDir(), primary.User(), name)
	backup := exec.CommandContext(tb.Context(), filepath.Join(primary.BinDir(), "pg_basebackup"),
		"--dbname", conninfo, "--pgdata", data, "--checkpoint=fast", "--no-sync", "--wal-method=stream", "--write-recovery-conf")
	backup.Dir = dir
	if os.Geteuid() == 0 {
		backup.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	output, err := backup.CombinedOutput()
	require.NoError(tb, err, "copy the primary: %s", output)

	options := settings()
	options["primary_conninfo"], options["fsync"] = conninfo, "off"
	// What became of the log shows soon, even when nothing is written.
	options["wal_receiver_status_interval"] = "1s"
	standby, err := devpg.Start(tb.Context(), devpg.Options{BinDir: primary.BinDir(), DataDir: data, Settings: options, Logger: Logger(tb)})
	require.NoError(tb, err, "start a standby")
	tb.Cleanup(func() { require.NoError(tb, standby.Stop()) })
	return standby
}
