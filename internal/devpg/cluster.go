package devpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxSocketPath is the longest path of a socket in bytes that all systems accept. macOS
// has 104 bytes including the terminating zero, Linux has 108.
const maxSocketPath = 103

// makeDataDir creates the empty data folder for initdb and gives it to the server's user.
func makeDataDir(dir string, owner *account) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("create data folder: %w", err)
	}
	return owner.own(dir)
}

// makeRunDir creates the folder of the socket and, for a temporary cluster, of the data
// folder.
func makeRunDir(tempDir string) (string, error) {
	tempDir, err := filepath.Abs(tempDir)
	if err != nil {
		return "", fmt.Errorf("resolve temporary folder: %w", err)
	}
	runDir, err := os.MkdirTemp(tempDir, "sexton-pg-")
	if err != nil {
		return "", fmt.Errorf("create folder for private postgres: %w", err)
	}
	if err := checkSocketDir(runDir); err != nil {
		return "", errors.Join(err, os.Remove(runDir))
	}
	return runDir, nil
}

// checkSocketDir returns an error if the folder is unsuitable for a socket or for a
// connection URL.
func checkSocketDir(dir string) error {
	// The folder must not contain a comma, because in connection URLs a comma separates
	// several hosts.
	if strings.Contains(dir, ",") {
		return fmt.Errorf("folder %q has a comma in its name, which connection URLs cannot hold: set TMPDIR to a folder without one", dir)
	}
	if socket := filepath.Join(dir, ".s.PGSQL."+port); len(socket) > maxSocketPath {
		return fmt.Errorf("socket path %q has %d bytes and the limit is %d: set TMPDIR to a shorter folder", socket,
			len(socket), maxSocketPath)
	}
	return nil
}

// initdb creates the cluster. --no-sync is safe because the cluster need not survive a
// power failure.
func (s *Server) initdb(ctx context.Context) error {
	locale := "C"
	if runtime.GOOS == "linux" {
		locale = "C.UTF-8"
	}
	cmd := s.command("initdb", "-D", s.dataDir, "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale="+locale,
		"--no-instructions", "--no-sync")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = hardStopTimeout
	p, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("start initdb as user %s: %w", s.userName(), err)
	}
	if err := s.janitor.watch(p.pid); err != nil {
		return errors.Join(err, p.end(syscall.SIGKILL))
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		// The signal goes to the whole process group, because initdb runs a server
		// process.
		_ = syscall.Kill(-p.pid, syscall.SIGINT)
		return errors.Join(fmt.Errorf("create cluster: %w", ctx.Err()), p.end(syscall.SIGINT))
	}
	if p.err != nil {
		return fmt.Errorf("create cluster: initdb: %w: %s", p.err, lastLines(out.String()))
	}
	return nil
}

// launch starts the server process and waits until it accepts connections. The caller
// must hold s.mu, unless no other goroutine has the server yet.
func (s *Server) launch(ctx context.Context) error {
	// The log is a file because the server must be able to log its shutdown after this
	// process has ended.
	log, err := os.OpenFile(filepath.Join(s.dataDir, "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("create log of postgres: %w", err)
	}
	defer log.Close()
	cmd := s.command("postgres", s.args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := startProcess(cmd)
	if err != nil {
		return fmt.Errorf("start postgres as user %s: %w", s.userName(), err)
	}
	s.proc = p
	if err := s.janitor.watch(p.pid); err != nil {
		return err
	}
	return s.awaitReady(ctx, p)
}

func (s *Server) awaitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %s", readyTimeout))
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for !s.ready(p.pid) {
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("start postgres: %s: %s", p.cmd.ProcessState, s.logTail())
		case <-ctx.Done():
			return fmt.Errorf("start postgres: %w: %s", context.Cause(ctx), s.logTail())
		}
	}
	return nil
}

// ready reports whether the server with the given id accepts connections, according to
// postmaster.pid. The process id in line 1 must match, because a crashed server leaves
// the file behind. Line 8 is the state.
func (s *Server) ready(pid int) bool {
	content, err := os.ReadFile(filepath.Join(s.dataDir, "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(content), "\n")
	return len(lines) >= 8 && strings.TrimSpace(lines[0]) == strconv.Itoa(pid) && strings.HasPrefix(lines[7], "ready")
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.binDir, name), args...)
	cmd.Dir = s.runDir
	cmd.Env = serverEnv()
	cmd.SysProcAttr = s.owner.attributes()
	return cmd
}

func (s *Server) userName() string {
	if s.owner == nil {
		return strconv.Itoa(os.Geteuid())
	}
	return s.owner.name
}

func (s *Server) logTail() string {
	content, err := os.ReadFile(filepath.Join(s.dataDir, "server.log"))
	if err != nil {
		return "its log cannot be read"
	}
	return lastLines(string(content))
}

// lastLines returns the last four lines of a program's output in one line, for an error
// message.
func lastLines(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines[max(0, len(lines)-4):], "; ")
}

// serverArgs returns the server's command line. The last value of a setting applies, so
// the settings that keep the server private come last.
func serverArgs(dataDir, socketDir string, opts Options) []string {
	args := []string{"-D", dataDir}
	set := func(name, value string) { args = append(args, "-c", name+"="+value) }
	if opts.DataDir == "" {
		set("fsync", "off")
		// Shared memory is in files of the data folder, so that a killed server leaves no
		// files in /dev/shm.
		set("dynamic_shared_memory_type", "mmap")
	}
	for _, name := range slices.Sorted(maps.Keys(opts.Settings)) {
		set(name, opts.Settings[name])
	}
	set("listen_addresses", "")
	set("port", port)
	set("unix_socket_directories", `"`+strings.ReplaceAll(socketDir, `"`, `""`)+`"`)
	set("unix_socket_permissions", "0700")
	set("logging_collector", "off")
	return args
}
