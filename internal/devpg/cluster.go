package devpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
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

	"sexton/internal/problem"
)

// maxSocketPath is the longest socket path in bytes that every Unix takes: macOS has 104 with the closing zero, Linux 108.
const maxSocketPath = 103

// cluster holds the facts about the data folder before the start.
type cluster struct {
	dir   string   // absolute path, empty for a temporary cluster
	major string   // major version of an existing cluster, empty if there is none yet
	owner *account // the user to run as
}

// inspectCluster looks at a data folder that the caller wants to keep. A folder with other things in it is refused.
func inspectCluster(dataDir string, owner *account) (cluster, error) {
	c := cluster{owner: owner}
	if dataDir == "" {
		return c, nil
	}
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return c, fmt.Errorf("resolve data folder: %w", err)
	}
	c.dir = dir
	if err := checkSocketDir(dir, "choose a shorter data folder", "choose a data folder without one"); err != nil {
		return c, err
	}
	version, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	switch {
	case err == nil:
		info, err := os.Stat(dir)
		if err != nil {
			return c, fmt.Errorf("read data folder: %w", err)
		}
		if owner != nil {
			if existing := ownerOf(info); existing != nil {
				c.owner = existing
			}
		}
		c.major = strings.TrimSpace(string(version))
		return c, nil
	case !errors.Is(err, fs.ErrNotExist):
		return c, fmt.Errorf("read data folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("read data folder: %w", err)
	}
	if len(entries) > 0 {
		return c, fmt.Errorf("data folder %q holds other files and no Postgres cluster: choose an empty or a new folder", dir)
	}
	return c, nil
}

// makeDataDir creates the folder that initdb fills. Folders above it stay enterable for the server's user.
func makeDataDir(dir string, owner *account) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("create data folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create data folder: %w", err)
	}
	return owner.own(dir)
}

// makeRunDir creates the folder of the socket and, for a temporary cluster, of the data.
func makeRunDir(tempDir string) (string, error) {
	tempDir, err := filepath.Abs(tempDir)
	if err != nil {
		return "", fmt.Errorf("resolve temporary folder: %w", err)
	}
	runDir, err := os.MkdirTemp(tempDir, "sexton-pg-")
	if err != nil {
		return "", fmt.Errorf("create folder for private postgres: %w", err)
	}
	if err := checkSocketDir(runDir, "set TMPDIR to a shorter folder", "set TMPDIR to a folder without one"); err != nil {
		return "", errors.Join(err, os.Remove(runDir))
	}
	return runDir, nil
}

// checkSocketDir refuses folders that no socket can be in, or that no connection URL can name.
func checkSocketDir(dir, whenLong, whenComma string) error {
	// Connection URLs take a comma for the separator of several hosts.
	if strings.Contains(dir, ",") {
		return fmt.Errorf("folder %q has a comma in its name, which connection URLs cannot hold: %s", dir, whenComma)
	}
	if socket := filepath.Join(dir, ".s.PGSQL."+port); len(socket) > maxSocketPath {
		return fmt.Errorf("socket path %q has %d bytes and the limit is %d: %s", socket, len(socket), maxSocketPath, whenLong)
	}
	return nil
}

// initdb creates the cluster. A temporary one need not survive a power cut, so it is not synced to disk.
func (s *Server) initdb(ctx context.Context, dir string) error {
	locale := "C"
	if runtime.GOOS == "linux" {
		locale = "C.UTF-8"
	}
	args := []string{"-D", dir, "-U", superuser, "-A", "trust", "-E", "UTF8", "--locale=" + locale, "--no-instructions"}
	if !s.kept {
		args = append(args, "--no-sync")
	}
	cmd := s.command("initdb", args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = hardStopTimeout
	p, err := startProcess(cmd, Fast)
	if err != nil {
		return fmt.Errorf("start initdb as user %s: %w", s.userName(), err)
	}
	if err := s.janitor.watch(p.pid); err != nil {
		return errors.Join(err, p.end(syscall.SIGKILL))
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		// To the whole group: initdb feeds a server process of its own.
		_ = syscall.Kill(-p.pid, syscall.SIGINT)
		return errors.Join(fmt.Errorf("create cluster: %w", ctx.Err()), p.end(syscall.SIGINT))
	}
	if p.err != nil {
		return fmt.Errorf("create cluster: initdb: %w: %s", p.err, lastLines(out.String()))
	}
	return nil
}

// writeSettings keeps a kept cluster private, and where it is, when others start it. It adds nothing to what it
// has written before unless the cluster has been moved; the last value counts.
func (s *Server) writeSettings(dir string) error {
	path := filepath.Join(dir, "postgresql.conf")
	var text strings.Builder
	for _, setting := range private(s.SocketDir()) {
		fmt.Fprintf(&text, "%s = '%s'\n", setting.name, strings.ReplaceAll(setting.value, "'", "''"))
	}
	there, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read settings of the cluster: %w", err)
	}
	if strings.HasSuffix(string(there), text.String()) {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write settings of the cluster: %w", err)
	}
	_, err = file.WriteString("\n" + text.String())
	return problem.Doing(errors.Join(err, file.Close()), "write settings of the cluster")
}

// launch starts the server process and waits until it accepts connections. The server is locked, or known to its caller alone.
func (s *Server) launch(ctx context.Context) error {
	// A file and not a pipe: the server must be able to log its shutdown when this process is gone.
	// It is added to: another server may be running there and writing it.
	log, err := os.OpenFile(filepath.Join(s.dataDir, "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("create log of postgres: %w", err)
	}
	defer log.Close()
	cmd := s.command("postgres", s.args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := startProcess(cmd, Fast)
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
			tail := s.logTail()
			if strings.Contains(tail, `lock file "postmaster.pid" already exists`) {
				return fmt.Errorf("start postgres: another server runs on %q (its process id is in postmaster.pid there): end it first", s.dataDir)
			}
			return fmt.Errorf("start postgres: %s: %s", p.cmd.ProcessState, tail)
		case <-ctx.Done():
			return fmt.Errorf("start postgres: %w: %s", context.Cause(ctx), s.logTail())
		}
	}
	return nil
}

// ready reads postmaster.pid: line 1 is the process id (a crashed server leaves an old file), line 8 the state.
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

// lastLines joins the end of a program's output into one line for an error message.
func lastLines(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines[max(0, len(lines)-4):], "; ")
}

// serverArgs builds the server's command line. The last value of a setting counts, so what keeps the server private comes last.
func serverArgs(dataDir, socketDir string, opts Options) []string {
	args := []string{"-D", dataDir}
	set := func(name, value string) { args = append(args, "-c", name+"="+value) }
	if opts.DataDir == "" {
		set("fsync", "off")
		// Shared memory in files of the data folder, so that even a server killed hard leaves nothing in /dev/shm.
		set("dynamic_shared_memory_type", "mmap")
	}
	for _, name := range slices.Sorted(maps.Keys(opts.Settings)) {
		set(name, opts.Settings[name])
	}
	for _, setting := range private(socketDir) {
		set(setting.name, setting.value)
	}
	set("logging_collector", "off")
	return args
}

type setting struct{ name, value string }

// private are the settings that let only the server's own user and root in.
func private(socketDir string) []setting {
	return []setting{
		{"listen_addresses", ""},
		{"port", port},
		{"unix_socket_directories", `"` + strings.ReplaceAll(socketDir, `"`, `""`) + `"`},
		{"unix_socket_permissions", "0700"},
	}
}
