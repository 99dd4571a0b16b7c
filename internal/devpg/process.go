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

// process is a running child.
type process struct {
	pid  int
	cmd  *exec.Cmd
	done chan struct{}
	err  error // result of Wait, valid once done is closed
}

// startProcess starts cmd and waits for its end in the background.
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

// end sends the signal to the process and waits until it has ended. If it does not end in
// time, end sends a stronger signal.
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
		// An error means that the process has ended already, which the wait below sees.
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

// account is the user that the server runs as when the caller is root. A nil account
// stands for the caller itself: all methods accept it.
type account struct {
	name     string
	uid, gid uint32
}

// unprivileged picks the user to drop to: none if the caller is not root, else
// "postgres", "nobody" or the id 65534.
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

// attributes returns the process attributes of a child that runs as this account, in its
// own process group: a Ctrl-C in the terminal goes to the whole foreground group and must
// not reach the server before its parent has finished with it.
func (a *account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// own gives a folder to the account.
func (a *account) own(dir string) error {
	if a == nil {
		return nil
	}
	return problem.Doing(os.Chown(dir, int(a.uid), int(a.gid)), "give folder to user %s", a.name)
}

// mustEnter reports the first folder on the way to one of dirs that the account cannot
// enter. Without this check, starting the binary would only fail with "permission
// denied". A shell that runs as the account does the check, since mode bits do not
// include access lists.
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

// ancestors lists dir and all folders above it, the root first.
func ancestors(dir string) []string {
	list := []string{"/"}
	for i, r := range dir {
		if r == '/' && i > 0 {
			list = append(list, dir[:i])
		}
	}
	return append(list, filepath.Clean(dir))
}

// serverEnv is the caller's environment without what would steer Postgres (PGPORT,
// PGDATA) or its language.
func serverEnv() []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "LANGUAGE" {
			continue
		}
		env = append(env, entry)
	}
	// With TZ set, initdb need not compare the machine's zone with the whole zone
	// database.
	return append(env, "LC_ALL=C", "TZ=UTC")
}

//go:embed janitor.sh
var janitorScript string

// janitor is a shell that outlives this process and cleans up after it. It runs in its
// own session, out of reach of the terminal's signals, and as the caller's user, who may
// remove the run folder.
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

// watch names the process to end if this one dies. Only the last one named counts.
func (j *janitor) watch(pid int) error {
	_, err := j.pipe.WriteString(strconv.Itoa(pid) + "\n")
	return problem.Doing(err, "register process with janitor")
}

// dismiss closes the pipe and waits until the janitor has ended. After an orderly stop
// the janitor has nothing to do.
func (j *janitor) dismiss() error {
	j.pipe.Close()
	return problem.Doing(j.cmd.Wait(), "wait for janitor")
}
