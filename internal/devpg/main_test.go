package devpg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// childMode makes the test binary run runChild instead of its tests.
const childMode = "DEVPG_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childMode) != "" {
		os.Exit(runChild())
	}
	goleak.VerifyTestMain(m)
}

// report is the JSON line that runChild prints about its server.
type report struct {
	RunDir  string `json:"run_dir"`
	URL     string `json:"url"`
	PID     int    `json:"pid"`
	Janitor int    `json:"janitor"`
}

// runChild starts a server, prints a report and waits until it is killed or its standard
// input ends. Then it stops the server.
func runChild() int {
	server, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r := report{
		RunDir: server.runDir, URL: server.URL("postgres"),
		PID: server.PID(), Janitor: server.janitor.cmd.Process.Pid,
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// eventually polls the condition for at most two minutes until it holds. The text what
// names the condition in the failure message.
func eventually(t *testing.T, what string, holds func() bool) {
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.Fail(t, "timed out waiting for "+what)
		}
	}
}

// notExists reports whether there is no file at the path.
func notExists(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// dead reports whether the process has ended. Zombies count as ended, because in a
// container nobody may collect the exit status of an orphan.
func dead(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && strings.Contains(string(status), "State:\tZ")
}

// scalar runs a query on a fresh connection.
func scalar[T any](t *testing.T, url, sql string) T {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	rows, err := conn.Query(ctx, sql)
	require.NoError(t, err)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return value
}

func execute(t *testing.T, url, sql string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, sql)
	require.NoError(t, err)
}

// openTemp returns a temporary folder that other users may enter. t.TempDir is not
// accessible to other users, and its path can be too long for a socket.
func openTemp(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "devpg-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777))
	return dir
}

// begin starts a server in the given environment. The server stops when the test ends.
func begin(t *testing.T, opts Options, env environment) *Server {
	server, err := start(t.Context(), opts, env)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}
