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

// The test runs a shell under the name "go" as the go command. Two concurrent test
// processes and a later one must get the same server, which must stop after the shell was
// killed.
func TestSharedServerStopsWithItsGoCommand(t *testing.T) {
	t.Parallel()
	self := pgtest.Must(os.Executable())(t)
	command := filepath.Join(t.TempDir(), "go")
	// Another process writes the file. If this process did, child processes that other
	// tests start could inherit the open file, and the kernel refuses to execute a file
	// that is open for writing.
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

	pgtest.WaitFor(t, "the removal of the server's folder", func(context.Context) (bool, error) {
		_, err := os.Lstat(folder)
		return errors.Is(err, fs.ErrNotExist), nil
	})
}
