package pgtest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
)

// NewOn returns a new, empty database on a private server.
func NewOn(tb testing.TB, server *devpg.Server) *Database {
	base := Must(url.Parse(server.URL("postgres")))(tb)
	private := &process{inMain: true, started: true, base: base}
	return private.create(tb, "template0")
}

// Standby starts a streaming standby of a private server with the given application_name.
// The standby stops when the test ends.
func Standby(tb testing.TB, primary *devpg.Server, name string) *devpg.Server {
	// t.TempDir is not accessible to the server's user.
	dir := Must(os.MkdirTemp("", "sexton-standby-"))(tb)
	tb.Cleanup(func() { require.NoError(tb, os.RemoveAll(dir)) })
	data := filepath.Join(dir, "data")
	copyCluster(tb, primary, data)
	conninfo := fmt.Sprintf("host='%s' port=5432 user='%s' application_name='%s'", primary.SocketDir(), primary.User(),
		name)
	options := settings()
	options["primary_conninfo"], options["fsync"] = conninfo, "off"
	// The standby reports its replay position every second, even if nothing is written.
	options["wal_receiver_status_interval"] = "1s"
	standby, err := devpg.Start(tb.Context(), devpg.Options{
		BinDir: primary.BinDir(), DataDir: data, Settings: options,
		Logger: Logger(tb),
	})
	require.NoError(tb, err, "start a standby")
	tb.Cleanup(func() { require.NoError(tb, standby.Stop()) })
	return standby
}

// copyCluster copies the data folder of a running server with the SQL backup functions,
// because some packages lack pg_basebackup. The standby fetches the log by streaming.
func copyCluster(tb testing.TB, primary *devpg.Server, to string) {
	ctx := tb.Context()
	conn := Must(pgx.Connect(ctx, primary.URL("postgres")))(tb)
	defer func() { require.NoError(tb, conn.Close(ctx)) }()
	begin, end := "SELECT pg_backup_start('standby', true)", "SELECT labelfile FROM pg_backup_stop(false)"
	if strings.HasPrefix(conn.PgConn().ParameterStatus("server_version"), "14") {
		begin, end = "SELECT pg_start_backup('standby', true, false)",
			"SELECT labelfile FROM pg_stop_backup(false, false)"
	}
	Must(conn.Exec(ctx, begin))(tb)
	entries := Must(os.ReadDir(primary.DataDir()))(tb)
	require.NoError(tb, os.Mkdir(to, 0o700))
	arguments := []string{"-a"}
	for _, entry := range entries {
		// These files belong to the running server, and the statistics change during the
		// copy.
		if !slices.Contains([]string{"postmaster.pid", "server.log", "pg_stat_tmp"}, entry.Name()) {
			arguments = append(arguments, filepath.Join(primary.DataDir(), entry.Name()))
		}
	}
	output, err := exec.CommandContext(ctx, "cp", append(arguments, to)...).CombinedOutput()
	require.NoError(tb, err, "copy the primary: %s", output)
	var label string
	require.NoError(tb, conn.QueryRow(ctx, end).Scan(&label))
	require.NoError(tb, os.Mkdir(filepath.Join(to, "pg_stat_tmp"), 0o700))
	require.NoError(tb, os.WriteFile(filepath.Join(to, "backup_label"), []byte(label), 0o600))
	require.NoError(tb, os.WriteFile(filepath.Join(to, "standby.signal"), nil, 0o600))
	owner, ok := Must(os.Stat(primary.DataDir()))(tb).Sys().(*syscall.Stat_t)
	require.True(tb, ok, "the data folder has an owner")
	for _, name := range []string{"..", ".", "pg_stat_tmp", "backup_label", "standby.signal"} {
		require.NoError(tb, os.Chown(filepath.Join(to, name), int(owner.Uid), int(owner.Gid)))
	}
}
