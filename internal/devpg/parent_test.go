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

// parent is a process of the test binary that has started a server.
type parent struct {
	report

	cmd   *exec.Cmd
	stdin io.Closer
}

// startParent runs the test binary in child mode and waits for its report. If owner is
// set, the process runs as that user.
func startParent(t *testing.T, owner *account) parent {
	binary, err := os.Executable()
	require.NoError(t, err)
	if owner != nil {
		// The folder of the test binary is not accessible to other users.
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
	require.NoError(t, err, "the child must report its server")
	require.NoError(t, json.Unmarshal(line, &p.report))
	return p
}

func (p parent) requireNothingLeft(t *testing.T) {
	eventually(t, "the end of the server process", func() bool { return dead(p.PID) })
	eventually(t, "the end of the janitor", func() bool { return dead(p.Janitor) })
	eventually(t, "the removal of folder "+p.RunDir, func() bool { return notExists(p.RunDir) })
}

func TestServerEndsWithItsParent(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			p := startParent(t, nil)
			require.False(t, notExists(filepath.Join(p.RunDir, ".s.PGSQL.5432")), "the socket must exist before the kill")
			require.NoError(t, p.cmd.Process.Signal(signal))
			require.Error(t, p.cmd.Wait(), "the signal must end the child")
			p.requireNothingLeft(t)
		})
	}
}

// The server and its janitor are in process groups of their own, because Ctrl-C in a
// terminal signals the whole group of the parent.
func TestServerHasItsOwnProcessGroup(t *testing.T) {
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

// If the tests run as root, this test runs the start and the stop as another user.
func TestUnprivilegedUser(t *testing.T) {
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

// idleProcess starts a process that waits for input until the end of the test. The
// argument is part of its command line.
func idleProcess(t *testing.T, argument string) *process {
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

func TestJanitorEndsTheLastRegisteredProcess(t *testing.T) {
	t.Parallel()
	runDir, err := makeRunDir("/tmp")
	require.NoError(t, err)
	data := filepath.Join(runDir, "data")
	server := idleProcess(t, data)
	j, err := startJanitor(runDir, data)
	require.NoError(t, err)
	require.NoError(t, j.watch(idleProcess(t, "earlier").pid))
	require.NoError(t, j.watch(server.pid))

	require.NoError(t, j.dismiss())

	<-server.done
	require.ErrorContains(t, server.err, "interrupt")
	require.True(t, notExists(runDir))
}

// The janitor must not end a process that merely has the id of the former server, because
// the system reuses ids.
func TestJanitorIgnoresForeignProcesses(t *testing.T) {
	t.Parallel()
	runDir, err := makeRunDir("/tmp")
	require.NoError(t, err)
	foreign := idleProcess(t, "/somewhere/else")
	j, err := startJanitor(runDir, filepath.Join(runDir, "data"))
	require.NoError(t, err)
	require.NoError(t, j.watch(foreign.pid))

	require.NoError(t, j.dismiss())

	require.True(t, notExists(runDir))
	select {
	case <-foreign.done:
		require.Fail(t, "the janitor ended a foreign process", "%v", foreign.err)
	default:
	}
}
