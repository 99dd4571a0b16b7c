//go:build linux

package pgtest_test

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// A shell of that name plays the go command: two test processes at once and a late one
// get the same server, which ends with it.
func TestServerOfARunEndsWithItsGoCommand(t *testing.T) {
	t.Parallel()
	self := pgtest.Must(os.Executable())(t)
	command := filepath.Join(t.TempDir(), "go")
	// By another process: what other tests start while this one has the file open could
	// not let go of it, and it could not be started.
	require.NoError(t, exec.CommandContext(t.Context(), "install", "-m", "700", "/bin/sh", command).Run())
	run := exec.CommandContext(t.Context(), command, "-c", `"$0" & "$0"; wait; "$0"; read -r _`, self)
	run.Env = append(os.Environ(), memberVariable+"=1")
	pgtest.Must(run.StdinPipe())(t)
	out := pgtest.Must(run.StdoutPipe())(t)
	require.NoError(t, run.Start())
	lines := bufio.NewScanner(out)
	var address string
	for range 3 {
		require.True(t, lines.Scan())
		got, found := strings.CutSuffix(lines.Text(), " <nil>")
		require.True(t, found, "%s", lines.Text())
		require.Contains(t, []string{"", got}, address)
		address = got
	}
	folder := filepath.Dir(pgtest.Must(url.Parse(address))(t).Query().Get("host"))
	require.DirExists(t, folder)

	require.NoError(t, run.Process.Kill())
	require.Error(t, run.Wait())

	pgtest.WaitFor(t, "the end of the server", func(context.Context) (bool, error) {
		_, err := os.Lstat(folder)
		return errors.Is(err, fs.ErrNotExist), nil
	})
}
