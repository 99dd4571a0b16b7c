package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// keeperVariable makes a test binary run the shared server in the folder that the
	// variable names. That process is called the keeper.
	keeperVariable = "SEXTON_TEST_KEEPER"
	// runFolder is the format of the name of a run's folder, from the id and the start
	// time of its go command.
	runFolder = "sexton-run-%d-%s"
	// runPoll is the interval at which a keeper checks whether its go command has ended.
	runPoll = 100 * time.Millisecond
)

// goCommand identifies the `go test` process that started this process. All test
// processes of one run have the same goCommand.
type goCommand struct {
	pid int
	// start is the start time of the process in clock ticks since boot. The process id
	// alone is not enough, because the system reuses ids.
	start string
}

// findGoCommand searches the ancestors of this process for a go command, because programs
// like time(1) may be between them.
func findGoCommand() (goCommand, bool) {
	for pid := os.Getppid(); pid > 1; {
		parent, start, err := stat(pid)
		if err != nil {
			return goCommand{}, false
		}
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && filepath.Base(exe) == "go" {
			return goCommand{pid: pid, start: start}, true
		}
		pid = parent
	}
	return goCommand{}, false
}

// stat returns the parent id and the start time of a process.
func stat(pid int) (parent int, start string, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	// The second field is the program's name in parentheses, which may contain spaces and
	// parentheses.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return 0, "", fmt.Errorf("process %d has ended", pid)
	}
	parent, err = strconv.Atoi(fields[1])
	return parent, fields[19], err
}

func (g goCommand) isRunning() bool {
	_, start, err := stat(g.pid)
	return err == nil && start == g.start
}

func (g goCommand) dir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf(runFolder, g.pid, g.start))
}

// joinRun returns the URL of the server that the test processes of one run share. It
// returns an empty string if no go command started this process. The first process of a
// run starts the keeper, which stops the server when the go command ends.
func joinRun() (address string, err error) {
	g, ok := findGoCommand()
	if !ok {
		return "", nil
	}
	dir := g.dir()
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() {
		return "", fmt.Errorf("folder %s belongs to another user", dir)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	// Closing the file releases the lock.
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "url"))
	if errors.Is(err, fs.ErrNotExist) {
		return startKeeper(dir)
	}
	return string(content), err
}

func startKeeper(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	// The keeper must outlive this process, so it gets no context that ends.
	cmd := exec.CommandContext(context.Background(), self)
	cmd.Dir, cmd.Env = "/", append(os.Environ(), keeperVariable+"="+dir, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	answer, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	text, err := io.ReadAll(answer)
	if err := errors.Join(err, answer.Close(), cmd.Process.Release()); err != nil {
		return "", err
	}
	address := strings.TrimSpace(string(text))
	if !strings.HasPrefix(address, "postgres:") {
		return "", fmt.Errorf("the keeper of the tests' server exited: %s", address)
	}
	return address, nil
}

// keep runs a server in the folder until the run's go command has ended. It prints the
// server's URL as its first line.
func keep(dir string) (err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var g goCommand
	if _, err := fmt.Sscanf(filepath.Base(dir), runFolder, &g.pid, &g.start); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	server, err := startServer(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	address := server.URL("postgres")
	if err := os.WriteFile(filepath.Join(dir, "url"), []byte(address), 0o600); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, address); err != nil {
		return err
	}
	// startKeeper reads standard output to its end. In addition, the go command waits
	// until all processes have closed the tests' output.
	if err := os.Stdout.Close(); err != nil {
		return err
	}
	for range time.Tick(runPoll) {
		if !g.isRunning() {
			break
		}
	}
	return nil
}
