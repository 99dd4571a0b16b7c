package devpg

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// patient is a program that reads its standard input for ever, with one extra argument to show in its command line.
func patient(t *testing.T, argument string) *process {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read -r forever", "sh", "-D", argument)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	cmd.SysProcAttr = (*account)(nil).attributes()
	p, err := startProcess(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = stdin.Close()
		<-p.done
	})
	return p
}

// Where the kernel does not tell the server of its parent's end, the janitor alone has to do.
func TestJanitorEndsTheServer(t *testing.T) {
	t.Parallel()
	runDir, err := makeRunDir("/tmp")
	require.NoError(t, err)
	data := filepath.Join(runDir, "data")
	server := patient(t, data)
	j, err := startJanitor(runDir, data)
	require.NoError(t, err)
	require.NoError(t, j.watch(patient(t, "earlier").pid))
	require.NoError(t, j.watch(server.pid))

	require.NoError(t, j.dismiss())

	<-server.done
	require.ErrorContains(t, server.err, "interrupt")
	require.True(t, gone(runDir))
}

// The id of a server that has ended may be given to any other process of the machine.
func TestJanitorSparesForeignProcesses(t *testing.T) {
	t.Parallel()
	runDir, err := makeRunDir("/tmp")
	require.NoError(t, err)
	foreign := patient(t, "/somewhere/else")
	j, err := startJanitor(runDir, filepath.Join(runDir, "data"))
	require.NoError(t, err)
	require.NoError(t, j.watch(foreign.pid))

	require.NoError(t, j.dismiss())

	require.True(t, gone(runDir))
	select {
	case <-foreign.done:
		require.Fail(t, "the janitor ended a foreign process", "%v", foreign.err)
	default:
	}
}
