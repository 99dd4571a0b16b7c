package devpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// superuser is the role that initdb creates. Authentication is "trust", because the
	// permissions of the socket's folder restrict access.
	superuser = "postgres"
	// port is only a part of the socket's file name. The server does not listen on TCP.
	port = "5432"

	readyTimeout    = 60 * time.Second
	readyPoll       = 5 * time.Millisecond
	fastStopTimeout = 20 * time.Second
	hardStopTimeout = 5 * time.Second
)

// Options selects the server's binaries, data folder and settings. The zero value runs a
// temporary server from the first binaries found.
type Options struct {
	// BinDir is the folder that contains initdb and postgres. If it is empty, Start
	// searches PATH, pg_config and the distributions' folders, newest first, and
	// downloads a server if it finds none.
	BinDir string
	// DataDir is the folder of an existing cluster, which Stop does not remove. If it is
	// empty, Start creates a cluster, which Stop removes.
	DataDir string
	// Settings are additional server settings (name to value), as in postgresql.conf. The
	// settings that keep the server private override them.
	Settings map[string]string
	// Logger logs the start and the stop at debug level. If it is nil, nothing is logged.
	Logger *slog.Logger
}

// Fast and Immediate are the signals that stop a running server.
const (
	// Fast rolls back open transactions, ends all sessions and writes a checkpoint.
	Fast = syscall.SIGINT
	// Immediate kills all server processes, like a crash. The next start recovers from
	// the write-ahead log.
	Immediate = syscall.SIGQUIT
)

// Server is a running private Postgres. Its methods are safe for concurrent use.
type Server struct {
	binDir  string
	dataDir string
	runDir  string
	owner   *account
	args    []string
	logger  *slog.Logger
	janitor *janitor
	stop    func() error

	mu      sync.Mutex
	proc    *process
	stopped bool
}

// Start finds the server's binaries, creates the cluster if DataDir is not set, and
// returns when the server accepts connections (after about half a second for a new
// cluster). The context limits the start only. The server runs until Stop or until this
// process ends.
//
// For common problems Start returns an error of one sentence that names the fix: no
// binaries, a socket path that is too long, a folder that the server's user cannot enter,
// or a cluster of another major version.
func Start(ctx context.Context, opts Options) (*Server, error) {
	return start(ctx, opts, hostEnvironment())
}

// environment holds the properties of the machine that the start of a server depends on.
// Tests replace single fields.
type environment struct {
	// owner is the user that runs the server. If owner is nil, the caller's user runs it.
	owner *account
	// tempDir is the folder in which the run folder is created.
	tempDir string
	// folders returns the folders that may contain server binaries, best first.
	folders func(ctx context.Context) []string
	// fetch downloads binaries of a major version and returns their folder.
	fetch func(ctx context.Context, owner *account, major string) (string, error)
}

func hostEnvironment() environment {
	return environment{
		owner:   unprivileged(),
		tempDir: os.TempDir(),
		folders: binaryFolders,
		fetch:   fetchBinaries,
	}
}

func start(ctx context.Context, opts Options, env environment) (_ *Server, err error) {
	logger := opts.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	began := time.Now()
	binDir, err := findBinaries(ctx, opts.BinDir, env)
	if err != nil {
		return nil, err
	}
	runDir, err := makeRunDir(env.tempDir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		binDir: binDir, runDir: runDir, dataDir: cmp.Or(opts.DataDir, filepath.Join(runDir, "data")),
		owner: env.owner, logger: logger,
	}
	s.stop = sync.OnceValue(s.shutdown)
	s.args = serverArgs(s.dataDir, s.SocketDir(), opts)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()

	if s.janitor, err = startJanitor(runDir, s.dataDir); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx, opts.DataDir != ""); err != nil {
		return nil, err
	}
	if err := s.launch(ctx); err != nil {
		return nil, err
	}
	logger.DebugContext(ctx, "private postgres started",
		"pid", s.PID(), "data_dir", s.dataDir, "bin_dir", binDir, "duration_ms", time.Since(began).Milliseconds())
	return s, nil
}

// prepare gives the run folder to the server's user and creates the cluster unless it
// exists.
func (s *Server) prepare(ctx context.Context, exists bool) error {
	if err := s.owner.own(s.runDir); err != nil {
		return err
	}
	if err := s.owner.mustEnter(ctx, s.binDir, s.runDir); err != nil || exists {
		return err
	}
	if err := makeDataDir(s.dataDir, s.owner); err != nil {
		return err
	}
	return s.initdb(ctx)
}

// URL returns a connection URL for the named database as the superuser "postgres". Both
// pgx and psql accept it.
func (s *Server) URL(database string) string {
	query := url.Values{"host": {s.SocketDir()}, "port": {port}}.Encode()
	u := url.URL{
		Scheme: "postgres",
		User:   url.User(superuser),
		Path:   "/" + database,
		// In the query of a connection URL, libpq treats a plus sign literally.
		RawQuery: strings.ReplaceAll(query, "+", "%20"),
	}
	return u.String()
}

// SocketDir returns the folder of the Unix socket. Only the server's user and root can
// enter it.
func (s *Server) SocketDir() string { return s.runDir }

// User returns the system user that runs the server, or "" if that is the caller.
func (s *Server) User() string {
	if s.owner == nil {
		return ""
	}
	return s.owner.name
}

// BinDir returns the folder of the server's binaries, with symbolic links resolved.
func (s *Server) BinDir() string { return s.binDir }

// DataDir returns the folder of the cluster.
func (s *Server) DataDir() string { return s.dataDir }

// PID returns the process id of the server. After Stop, it returns the id of the last
// server.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid
}

// Restart stops the server in the given mode and starts it again with the same data and
// URL. It returns when the new server accepts connections. After Stop it returns an
// error.
func (s *Server) Restart(ctx context.Context, mode syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("restart postgres: the server has been stopped")
	}
	if err := s.proc.end(mode); err != nil {
		return err
	}
	return s.launch(ctx)
}

// Stop stops the server, waits for it to exit and removes the temporary folder. It may be
// called more than once and concurrently. All calls wait for it to exit and return the
// same error.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) shutdown() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	var errs []error
	if s.proc != nil {
		errs = append(errs, s.proc.end(syscall.SIGINT))
	}
	if err := os.RemoveAll(s.runDir); err != nil {
		errs = append(errs, fmt.Errorf("remove folder of private postgres: %w", err))
	}
	// The janitor ends last. If this process is killed before that, the janitor stops the
	// server and removes the folder.
	if s.janitor != nil {
		errs = append(errs, s.janitor.dismiss())
	}
	s.logger.Debug("private postgres stopped", "data_dir", s.dataDir)
	return errors.Join(errs...)
}
