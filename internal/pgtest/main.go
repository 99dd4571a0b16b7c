// Package pgtest gives tests databases of their own on a real Postgres.
//
// A package that uses it hands its TestMain to Main:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// The server is the one that TEST_DATABASE_URL names (a postgres:// URL of a superuser), else a private one of this test process,
// started by the first test that asks. SEXTON_PG_BIN chooses its binaries. Without a server tests fail, they never skip.
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"sexton/internal/devpg"
)

// startTimeout bounds everything that the harness itself does in a database.
const startTimeout = 2 * time.Minute

// shared is the server of this test process. The testing package has no way to hand a value from TestMain to the tests, so it has
// to be a variable; nothing but this package sees it.
var shared process

// process is the one server of a test process and the templates on it.
type process struct {
	mu        sync.Mutex
	inMain    bool
	external  string // TEST_DATABASE_URL
	started   bool
	err       error
	server    *devpg.Server // nil if TEST_DATABASE_URL names the server
	base      *url.URL
	templates map[string]*template
}

// Main runs the tests, stops the server that they used, looks for leaked goroutines and exits the process.
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	shared.enter(os.Getenv("TEST_DATABASE_URL"))
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: "+err.Error())
		code = max(code, 1)
	}
	if code != 0 {
		// A failed test may well leave goroutines, and they would hide its message.
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest: goroutines left behind after the tests: "+err.Error())
		return 1
	}
	return 0
}

func (p *process) enter(external string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inMain, p.external = true, external
}

// url returns the URL of a database on the server, which the first call starts.
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
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		server, err := startServer(ctx, nil)
		if err != nil {
			return fmt.Errorf("start postgres for the tests: %w", err)
		}
		p.server = server
		base = server.URL("postgres")
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return errors.New("TEST_DATABASE_URL is no URL of the form postgres://user:password@host:port/database")
	}
	p.base = u
	return nil
}

// close removes the templates of a server that lives on, or stops the private one.
func (p *process) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil {
		return p.server.Stop()
	}
	var errs []error
	for _, t := range p.templates {
		if t.name != "" {
			errs = append(errs, adminExec(p.base.String(), dropStatement(t.name)))
		}
	}
	return errors.Join(errs...)
}

// adminExec runs statements on a connection of its own: CREATE and DROP DATABASE cannot run in the database they are about.
func adminExec(url string, statements ...string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to test server: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("run %q: %w", statement, err)
		}
	}
	return nil
}

func dropStatement(database string) string {
	return "DROP DATABASE IF EXISTS " + pgx.Identifier{database}.Sanitize() + " WITH (FORCE)"
}

// uniqueName returns a name that no other test process uses, even on a server that many machines share.
func uniqueName(prefix string) string {
	var random [8]byte
	// Read never fails: since Go 1.24 it ends the process instead.
	_, _ = rand.Read(random[:])
	return prefix + "_" + hex.EncodeToString(random[:])
}
