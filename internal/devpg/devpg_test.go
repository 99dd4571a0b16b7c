package devpg

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	server, err := Start(t.Context(), Options{Settings: map[string]string{
		"work_mem": "7MB", "cluster_name": `a "b" 'c'`, "listen_addresses": "*",
	}})
	require.NoError(t, err)
	defer server.Stop()

	url := server.URL("postgres")
	require.Equal(t, "postgres", scalar[string](t, url, "SELECT current_user::text"))
	for setting, want := range map[string]string{
		"work_mem": "7MB", "cluster_name": `a "b" 'c'`, "listen_addresses": "",
		"fsync": "off", "synchronous_commit": "on", "server_encoding": "UTF8",
	} {
		require.Equal(t, want, scalar[string](t, url, "SHOW "+setting), setting)
	}
	info, err := os.Stat(server.SocketDir())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "other users must not be able to enter the socket's folder")
	if os.Geteuid() == 0 {
		require.NotZero(t, info.Sys().(*syscall.Stat_t).Uid, "the server must not belong to root")
	}

	pid, janitor := server.PID(), server.janitor.cmd.Process.Pid
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := server.Stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, server.Stop(), "stop must be repeatable")
	require.True(t, dead(pid), "server process %d is still running", pid)
	require.True(t, dead(janitor), "janitor process %d is still running", janitor)
	require.True(t, notExists(server.SocketDir()), "folder %s still exists", server.SocketDir())
	require.ErrorContains(t, server.Restart(t.Context(), Fast), "has been stopped")
}

func TestURLWorksWithPsql(t *testing.T) {
	t.Parallel()
	server := begin(t, Options{}, hostEnvironment())
	database := `odd "name'/ü?x=1`
	execute(t, server.URL("postgres"), `CREATE DATABASE "odd ""name'/ü?x=1"`)
	require.Equal(t, database, scalar[string](t, server.URL(database), "SELECT current_database()::text"))
	require.NotContains(t, server.URL(database), "+", "libpq treats a plus sign literally")
	// A downloaded server has no psql. If no other psql works, the test ends here.
	psql, err := exec.LookPath(filepath.Join(server.BinDir(), "psql"))
	if err != nil {
		psql = "psql"
	}
	// Debian's psql is a script that fails if no version of the client is installed.
	if exec.CommandContext(t.Context(), psql, "--version").Run() != nil {
		return
	}
	out, err := exec.CommandContext(t.Context(), psql, "-XAtc", "SELECT current_database()",
		server.URL(database)).CombinedOutput()
	require.NoError(t, err, "output of psql: %s", out)
	require.Equal(t, database, strings.TrimSpace(string(out)))
}

func TestUnusualTemporaryFolder(t *testing.T) {
	t.Parallel()
	env := hostEnvironment()
	env.tempDir = filepath.Join(openTemp(t), `a "b' é%20`)
	require.NoError(t, os.Mkdir(env.tempDir, 0o755))
	require.Equal(t, 1, scalar[int](t, begin(t, Options{}, env).URL("postgres"), "SELECT 1"))
}

func TestRestart(t *testing.T) {
	t.Parallel()
	server := begin(t, Options{}, hostEnvironment())
	url := server.URL("postgres")
	execute(t, url, "CREATE TABLE t AS SELECT 1 AS id")
	for _, mode := range []syscall.Signal{Fast, Immediate} {
		before := server.PID()
		require.NoError(t, server.Restart(t.Context(), mode))
		require.NotEqual(t, before, server.PID())
		require.True(t, dead(before))
		require.Equal(t, 1, scalar[int](t, url, "SELECT id FROM t"), "mode %d", mode)
	}
}

func TestStopAfterServerEndedByItself(t *testing.T) {
	t.Parallel()
	server, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	defer server.Stop()
	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGQUIT))
	<-server.proc.done
	require.NoError(t, server.Stop())
	require.True(t, notExists(server.SocketDir()))
}

func TestStartCancelled(t *testing.T) {
	t.Parallel()
	env := hostEnvironment()
	env.tempDir = openTemp(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// The context is canceled when initdb has begun to write, which is after the search
	// for binaries.
	go func() {
		defer cancel()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			found, err := filepath.Glob(filepath.Join(env.tempDir, "*", "data", "PG_VERSION"))
			if len(found) > 0 || err != nil || ctx.Err() != nil {
				return
			}
		}
	}()
	_, err := start(ctx, Options{}, env)
	require.ErrorIs(t, err, context.Canceled)
	requireEmpty(t, env.tempDir)
}

func requireEmpty(t *testing.T, dir string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "folder %s must be empty", dir)
}
