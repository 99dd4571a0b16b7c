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
	// keeperVariable makes a test binary the keeper of the server in the folder that it
	// names.
	keeperVariable = "SEXTON_TEST_KEEPER"
	// runFolder is the name of the folder of a run, with what identifies its go command.
	runFolder = "sexton-run-%d-%s"
	// runPoll is how often a keeper looks whether the go command that it works for has
	// ended.
	runPoll = 100 * time.Millisecond
)

// goCommand is the `go test` that started this process. All test processes of one run
// have the same.
type goCommand struct {
	pid   int
	start string // in clock ticks after the machine's: process ids come again
}

// findGoCommand looks for it among the ancestors, because programs like time(1) may stand
// between.
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

// stat returns the parent and the start of a process.
func stat(pid int) (parent int, start string, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", err
	}
	// The second field is a name in brackets, which may hold anything.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return 0, "", fmt.Errorf("process %d has ended", pid)
	}
	parent, err = strconv.Atoi(fields[1])
	return parent, fields[19], err
}

func (g goCommand) lives() bool {
	_, start, err := stat(g.pid)
	return err == nil && start == g.start
}

func (g goCommand) dir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf(runFolder, g.pid, g.start))
}

// joinRun returns the URL of the server that the test processes of one run share, or
// nothing where no go command started this process. The first process starts a keeper,
// which ends the server with the go command.
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
	// Its end unlocks the file.
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
	// It lives on behind this process.
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
		return "", fmt.Errorf("the keeper of the tests' server ended: %s", address)
	}
	return address, nil
}

// keep runs the server of a folder until the go command has ended. The first line that it
// prints is the server's URL.
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
	// The process that started this one reads to the end, and go waits for the last
	// writer of its tests' output.
	if err := os.Stdout.Close(); err != nil {
		return err
	}
	for range time.Tick(runPoll) {
		if !g.lives() {
			break
		}
	}
	return nil
}
