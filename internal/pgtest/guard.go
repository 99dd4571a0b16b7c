package pgtest

import (
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Guard kills a process when the test's process ends, however it ends.
func Guard(tb testing.TB, pid int) {
	shell := exec.CommandContext(tb.Context(), "/bin/sh", "-c", `read -r _; kill -KILL "$0"`, strconv.Itoa(pid))
	input := Must(shell.StdinPipe())(tb)
	require.NoError(tb, shell.Start())
	tb.Cleanup(func() {
		_ = shell.Wait() // The test's context has killed it.
		_ = input.Close()
	})
}
