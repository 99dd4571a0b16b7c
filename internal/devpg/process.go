package devpg

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sexton/internal/problem"
)

// process is a child process that has been started.
type process struct {
	pid  int
	cmd  *exec.Cmd
	done chan struct{}
	// err is the result of Wait. It is valid after done is closed.
	err error
}

// startProcess starts cmd and waits in a goroutine for it to exit.
func startProcess(cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// end sends the signal to the process and waits until the process has ended. If that
// takes too long, it sends SIGQUIT and then SIGKILL.
func (p *process) end(signal syscall.Signal) error {
	steps := []struct {
		signal  syscall.Signal
		timeout time.Duration
	}{
		{signal, fastStopTimeout},
		{syscall.SIGQUIT, hardStopTimeout},
		{syscall.SIGKILL, hardStopTimeout},
	}
	for _, step := range steps {
		// Signal fails if the process has already ended. The wait below returns
		// immediately in that case.
		_ = p.cmd.Process.Signal(step.signal)
		timer := time.NewTimer(step.timeout)
		select {
		case <-p.done:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return fmt.Errorf("stop postgres: process %d survived SIGKILL", p.pid)
}

// account is the user that runs the server if the caller is root. All methods accept a
// nil account, which stands for the caller's user.
type account struct {
	name     string
	uid, gid uint32
}

// unprivileged returns nil if the caller is not root. Otherwise it returns the user
// "postgres", "nobody" or the id 65534, whichever exists first.
func unprivileged() *account {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &account{name: name, uid: uint32(uid), gid: uint32(gid)}
		}
	}
	return &account{name: "65534", uid: 65534, gid: 65534}
}

// attributes returns the attributes of a child process that runs as this account in its
// own process group. Ctrl-C in a terminal signals the whole foreground group, and the
// server must not stop before its parent has stopped using it.
func (a *account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// own makes the account the owner of a folder.
func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	return problem.Doing(os.Chown(dir, int(a.uid), int(a.gid)), "give folder to user %s", a.name)
}

// mustEnter returns an error that names the first folder on the paths of dirs that the
// account cannot enter. Without this check, starting the server would fail with only
// "permission denied". A shell that runs as the account does the check, because mode bits
// do not include access lists.
func (a *account) mustEnter(ctx context.Context, dirs ...string) error {
	if a == nil {
		return nil
	}
	args := []string{"-c", `for dir; do [ -x "$dir" ] || { printf %s "$dir"; exit 1; }; done`, "sh"}
	for _, dir := range dirs {
		args = append(args, ancestors(dir)...)
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = a.attributes()
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && out.Len() > 0 {
		return fmt.Errorf("folder %q cannot be entered by user %s, which runs Postgres because root may not: "+
			"allow it with chmod o+x, or choose another folder (TMPDIR for temporary ones)", out.String(), a.name)
	}
	return problem.Doing(err, "run a shell as user %s", a.name)
}

// ancestors returns dir and all folders above it, the root first.
func ancestors(dir string) []string {
	list := []string{"/"}
	for i, r := range dir {
		if r == '/' && i > 0 {
			list = append(list, dir[:i])
		}
	}
	return append(list, filepath.Clean(dir))
}

// serverEnv returns the caller's environment without the variables that configure
// Postgres (PGPORT, PGDATA) or the language.
func serverEnv() []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "LANGUAGE" {
			continue
		}
		env = append(env, entry)
	}
	// If TZ is set, initdb does not compare the machine's time zone with the whole zone
	// database.
	return append(env, "LC_ALL=C", "TZ=UTC")
}

//go:embed janitor.sh
var janitorScript string

// janitor is a shell process that outlives this process and cleans up after it. It runs
// in its own session, so that signals of the terminal do not reach it, and as the
// caller's user, who may remove the run folder.
type janitor struct {
	cmd  *exec.Cmd
	pipe *os.File
}

func startJanitor(runDir, dataDir string) (*janitor, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("create pipe to janitor: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "sexton-janitor", runDir, dataDir)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/bin:/bin"}
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start janitor: %w", err)
	}
	return &janitor{cmd: cmd, pipe: w}, nil
}

// watch registers the process that the janitor ends if this process dies. It replaces an
// earlier registration.
func (j *janitor) watch(pid int) error {
	_, err := j.pipe.WriteString(strconv.Itoa(pid) + "\n")
	return problem.Doing(err, "register process with janitor")
}

// dismiss closes the pipe and waits until the janitor has ended. After Stop has ended the
// server, the janitor finds nothing to clean up.
func (j *janitor) dismiss() error {
	j.pipe.Close()
	return problem.Doing(j.cmd.Wait(), "wait for janitor")
}
