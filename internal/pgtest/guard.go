package pgtest

import (
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Guard starts a shell that kills the process with the given id when this test process
// ends, even if this process crashes.
func Guard(tb testing.TB, pid int) {
	shell := exec.CommandContext(tb.Context(), "/bin/sh", "-c", `read -r _; kill -KILL "$0"`, strconv.Itoa(pid))
	input := Must(shell.StdinPipe())(tb)
	require.NoError(tb, shell.Start())
	tb.Cleanup(func() {
		_ = shell.Wait() // The test's context has killed the shell.
		_ = input.Close()
	})
}
