package devpg

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// parent is a copy of the test binary that has started a server.
type parent struct {
	report

	cmd   *exec.Cmd
	stdin io.Closer
}

// startParent runs the test binary as a child that starts a server, as another user if
// owner is set.
func startParent(t *testing.T, owner *account) parent {
	binary, err := os.Executable()
	require.NoError(t, err)
	if owner != nil {
		// The go tool builds into a folder that others cannot enter.
		content, err := os.Open(binary)
		require.NoError(t, err)
		defer content.Close()
		binary = filepath.Join(openTemp(t), "devpg.test")
		installProgram(t, binary, content)
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), childMode+"=1", "TMPDIR=/tmp")
	cmd.Dir = "/"
	cmd.SysProcAttr = owner.attributes()
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := parent{cmd: cmd, stdin: stdin}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err, "the child reported no server")
	require.NoError(t, json.Unmarshal(line, &p.report))
	return p
}

func (p parent) requireNothingLeft(t *testing.T) {
	eventually(t, "the end of the server process", func() bool { return dead(p.PID) })
	eventually(t, "the end of the janitor", func() bool { return dead(p.Janitor) })
	eventually(t, "the removal of folder "+p.RunDir, func() bool { return gone(p.RunDir) })
}

func TestNothingOutlivesTheParent(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			p := startParent(t, nil)
			require.False(t, gone(filepath.Join(p.RunDir, ".s.PGSQL.5432")), "the socket must exist before the kill")
			require.NoError(t, p.cmd.Process.Signal(signal))
			require.Error(t, p.cmd.Wait(), "the child must end by the signal")
			p.requireNothingLeft(t)
		})
	}
}

// Ctrl-C in a terminal reaches the whole process group of the parent at once.
func TestServerIsOutOfReachOfTheTerminal(t *testing.T) {
	t.Parallel()
	p := startParent(t, nil)
	group, err := syscall.Getpgid(p.cmd.Process.Pid)
	require.NoError(t, err)
	for _, pid := range []int{p.PID, p.Janitor} {
		got, err := syscall.Getpgid(pid)
		require.NoError(t, err)
		require.NotEqual(t, group, got, "process %d is in the group of its parent", pid)
	}
	require.NoError(t, p.stdin.Close())
	require.NoError(t, p.cmd.Wait())
	p.requireNothingLeft(t)
}

// As root this runs the whole start and stop as an ordinary user, too.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	var owner *account
	if os.Geteuid() == 0 {
		owner = &account{name: "65534", uid: 65534, gid: 65534}
	}
	p := startParent(t, owner)
	require.NoError(t, p.stdin.Close())
	require.NoError(t, p.cmd.Wait())
	p.requireNothingLeft(t)
}

// patient is a program that reads its standard input for ever, with one extra argument to
// show in its command line.
func patient(t *testing.T, argument string) *process {
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
