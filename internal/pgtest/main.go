package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"sexton/internal/devpg"
)

// startTimeout limits the start of the server and each administrative connection of this
// package.
const startTimeout = 2 * time.Minute

// leakTimeout limits how long Main waits for goroutines of finished tests to end.
const leakTimeout = 10 * time.Second

// gcPercent is the GOGC value of test processes. With Go's default of 100 a test process
// spent a fifth of its time on collecting a few megabytes.
const gcPercent = 400

// shared is the server of this test process. It is a package variable because the testing
// package cannot pass values from TestMain to tests.
var shared process

// process holds the server that a test process uses, and the templates on it.
type process struct {
	mu     sync.Mutex
	inMain bool
	// external is the value of TEST_DATABASE_URL.
	external string
	started  bool
	err      error
	// server is nil if another process started the server.
	server *devpg.Server
	// ofRun is true if all test processes of one go command share the server and the
	// templates.
	ofRun     bool
	base      *url.URL
	templates map[string]*template
	// idle holds open connections to the database postgres for reuse: a new connection
	// costs the server as much as copying a database. keep is false if a test may stop
	// the server, so that connections are not reused.
	keep bool
	idle []*pgx.Conn
}

// Main runs the tests, stops the server that they used, reports leaked goroutines as a
// failure, and exits the process.
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if dir := os.Getenv(keeperVariable); dir != "" {
		if err := keep(dir); err != nil {
			fmt.Fprintln(os.Stdout, err)
			return 1
		}
		return 0
	}
	useMemory()
	setParallel()
	shared.keep = true
	debug.SetGCPercent(gcPercent)
	shared.enterMain(os.Getenv("TEST_DATABASE_URL"))
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: "+err.Error())
		code = max(code, 1)
	}
	if code != 0 {
		// A failed test may leave goroutines running. Reporting them would hide the
		// failure.
		return code
	}
	if err := findLeaks(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: goroutines of tests are still running: "+err.Error())
		return 1
	}
	return 0
}

// findLeaks returns an error if goroutines of finished tests are still running. It
// repeats the check because on a busy machine a goroutine that cancels a statement at the
// end of a test may need longer than the half second for which goleak waits.
func findLeaks() (err error) {
	for began := time.Now(); time.Since(began) < leakTimeout; {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

// setParallel makes the testing package run twice as many tests in parallel as there are
// processors, unless -parallel is given. Tests spend half of their time waiting for the
// server, locks and timeouts.
func setParallel() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))) // Set fails only for unknown names.
	}
}

func (p *process) enterMain(external string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inMain, p.external = true, external
}

// url returns the URL of a database on the server. The first call starts the server.
func (p *process) url(database string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.inMain {
		return "", errors.New("the package's TestMain must call pgtest.Main, which stops the server after the tests")
	}
	if !p.started {
		p.started = true
		p.err = p.start()
	}
	if p.err != nil {
		return "", p.err
	}
	u := *p.base
	u.Path, u.RawPath = "/"+database, ""
	return u.String(), nil
}

func (p *process) start() error {
	base := p.external
	if base == "" {
		var err error
		if base, err = p.startOwn(); err != nil {
			return fmt.Errorf("start postgres for the tests: %w", err)
		}
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return errors.New("TEST_DATABASE_URL must have the form postgres://user:password@host:port/database")
	}
	p.base = u
	return nil
}

// startOwn returns the URL of the server that all test processes of the go command share.
// If this process was not started by a go command, it starts a server for this process
// only.
func (p *process) startOwn() (string, error) {
	address, err := joinRun()
	if err != nil || address != "" {
		p.ofRun = true
		return address, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if p.server, err = startServer(ctx, nil); err != nil {
		return "", err
	}
	return p.server.URL("postgres"), nil
}

// close drops the templates on an external server, or stops the server of this process.
// It does not stop the run's shared server, which the keeper stops.
func (p *process) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, conn := range p.idle {
		errs = append(errs, conn.Close(context.Background()))
	}
	p.idle, p.keep = nil, false
	if p.server != nil {
		return errors.Join(append(errs, p.server.Stop())...)
	}
	if p.ofRun {
		return errors.Join(errs...)
	}
	for _, t := range p.templates {
		if t.name != "" {
			errs = append(errs, administer(p.base.String(), func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, dropStatement(t.name))
				return err
			}))
		}
	}
	return errors.Join(errs...)
}

// adminExec runs statements in the database postgres, such as CREATE DATABASE and DROP
// DATABASE.
func (p *process) adminExec(statements ...string) error {
	return p.admin(func(ctx context.Context, conn *pgx.Conn) error {
		for _, statement := range statements {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return fmt.Errorf("run %q: %w", statement, err)
			}
		}
		return nil
	})
}

// admin calls f with a connection to the database postgres, which may be a reused one.
func (p *process) admin(f func(ctx context.Context, conn *pgx.Conn) error) error {
	address, err := p.url("postgres")
	if err != nil {
		return err
	}
	p.mu.Lock()
	var conn *pgx.Conn
	keep := p.keep
	if last := len(p.idle) - 1; last >= 0 {
		conn, p.idle = p.idle[last], p.idle[:last]
	}
	p.mu.Unlock()
	if conn == nil && !keep {
		return administer(address, f)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if conn == nil {
		if conn, err = pgx.Connect(ctx, address); err != nil {
			return fmt.Errorf("connect to test server: %w", err)
		}
	}
	err = f(ctx, conn)
	if conn.IsClosed() {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, conn)
	return err
}

// administer calls f with a new connection and closes it afterwards.
func administer(url string, f func(ctx context.Context, conn *pgx.Conn) error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to test server: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return f(ctx, conn)
}

// createDatabase copies a database file by file, which is the only method of Postgres 14.
// The default of later versions reads and logs every block and takes twice as long.
func (p *process) createDatabase(name, from, options string) error {
	statement := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize() + " TEMPLATE " + pgx.Identifier{from}.Sanitize() +
		" " + options
	return p.admin(func(ctx context.Context, conn *pgx.Conn) error {
		if !strings.HasPrefix(conn.PgConn().ParameterStatus("server_version"), "14") {
			statement += " STRATEGY FILE_COPY"
		}
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("run %q: %w", statement, err)
		}
		return nil
	})
}

func dropStatement(database string) string {
	return "DROP DATABASE IF EXISTS " + pgx.Identifier{database}.Sanitize() + " WITH (FORCE)"
}

// uniqueName returns the prefix with a random suffix, so that test processes of several
// machines can share a server.
func uniqueName(prefix string) string {
	return prefix + "_" + strings.ToLower(rand.Text())
}
