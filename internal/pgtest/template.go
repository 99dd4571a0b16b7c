package pgtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// template is a database that is built once and copied many times.
type template struct {
	// from is the name of the database that the template is copied from.
	from  string
	build func() (string, error)
	// name is the name of the template database, which close drops. build sets name.
	name string
}

// FromTemplate returns a new copy of a template database, which takes about 10 ms. The
// first call with a key and a function creates the template and calls build with its URL.
// Test processes of one go command share templates, so the result of build must depend on
// the key only. If build fails, all tests with this key fail.
func FromTemplate(tb testing.TB, key string, build func(ctx context.Context, url string) error) *Database {
	return Copy(tb, Template(tb, key, "template0", build))
}

// Template returns the name of a template database. The first call with a key and a
// function creates it as a copy of the database from and calls build, like FromTemplate.
func Template(tb testing.TB, key, from string, build func(ctx context.Context, url string) error) string {
	// The key includes the name of the function build, and thus the path of its package,
	// so that equal keys of two packages do not collide.
	return shared.buildOnce(tb, runtime.FuncForPC(reflect.ValueOf(build).Pointer()).Name()+" "+key, from, build)
}

func (p *process) buildOnce(tb testing.TB, key, from string, build func(ctx context.Context, url string) error) string {
	name, err := p.template(key, from, build).build()
	require.NoError(tb, err, "build template %q", key)
	return name
}

// Copy returns a new copy of a template database.
func Copy(tb testing.TB, template string) *Database { return shared.create(tb, template) }

func (p *process) template(key, from string, build func(ctx context.Context, url string) error) *template {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.templates == nil {
		p.templates = map[string]*template{}
	}
	t, ok := p.templates[key]
	if !ok {
		t = &template{from: from}
		t.build = sync.OnceValues(func() (string, error) { return p.buildTemplate(key, t, build) })
		p.templates[key] = t
	}
	return t
}

// shareTemplate builds a template that all test processes of the run share. It waits if
// another process is building the template.
func (p *process) shareTemplate(key, from string, build func(ctx context.Context, url string) error) (string, error) {
	admin, err := p.url("postgres")
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("sexton_template_%x", sha256.Sum256([]byte(key)))[:48]
	err = administer(admin, func(ctx context.Context, conn *pgx.Conn) error {
		// The end of the session releases the lock.
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name); err != nil {
			return err
		}
		var complete bool
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND NOT datallowconn)",
			name).Scan(&complete)
		if err != nil || complete {
			return err
		}
		// An earlier process may have failed before the template was complete.
		if _, err := conn.Exec(ctx, dropStatement(name)); err != nil {
			return err
		}
		return p.fillTemplate(name, from, build)
	})
	return name, err
}

func (p *process) buildTemplate(key string, t *template,
	build func(ctx context.Context, url string) error,
) (string, error) {
	// The call of url starts the server if necessary, which sets p.ofRun.
	if _, err := p.url("postgres"); err != nil {
		return "", err
	}
	if p.ofRun {
		return p.shareTemplate(key, t.from, build)
	}
	name := uniqueName("sexton_template")
	p.mu.Lock()
	t.name = name
	p.mu.Unlock()
	return name, p.fillTemplate(name, t.from, build)
}

func (p *process) fillTemplate(name, from string, build func(ctx context.Context, url string) error) error {
	address, err := p.url(name)
	if err != nil {
		return err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	if err := p.createDatabase(name, from, "ENCODING 'UTF8'"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := build(ctx, address); err != nil {
		return err
	}
	// A database can be copied only while it has no sessions, and the sessions of a
	// closed pool may end late.
	err = p.adminExec(
		"ALTER DATABASE "+quoted+" WITH ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '"+name+"'")
	if err != nil {
		return fmt.Errorf("close template %s: %w", name, err)
	}
	return nil
}
