package pgtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// template is a database that is built once and copied many times.
type template struct {
	build func() (string, error)
	name  string // set by build, for the end of the process
}

// FromTemplate returns a fresh copy of a template database. The first call with a key in a test process creates the template and
// fills it with build, which receives its URL; the later ones only copy it, which takes about 20 ms. If the build fails, so
// does every test of its key.
func FromTemplate(tb testing.TB, key string, build func(ctx context.Context, url string) error) *Database {
	tb.Helper()
	return shared.fromTemplate(tb, key, build)
}

func (p *process) fromTemplate(
	tb testing.TB, key string, build func(ctx context.Context, url string) error,
) *Database {
	tb.Helper()
	name, err := p.template(key, build).build()
	require.NoError(tb, err, "build template %q", key)
	return p.create(tb, name)
}

func (p *process) template(key string, build func(ctx context.Context, url string) error) *template {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.templates == nil {
		p.templates = map[string]*template{}
	}
	t, ok := p.templates[key]
	if !ok {
		t = &template{}
		t.build = sync.OnceValues(func() (string, error) { return p.buildTemplate(t, build) })
		p.templates[key] = t
	}
	return t
}

func (p *process) buildTemplate(t *template, build func(ctx context.Context, url string) error) (string, error) {
	admin, err := p.url("postgres")
	if err != nil {
		return "", err
	}
	name := uniqueName("sexton_template")
	address, err := p.url(name)
	if err != nil {
		return "", err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	if err := adminExec(admin, "CREATE DATABASE "+quoted+" TEMPLATE template0 ENCODING 'UTF8'"); err != nil {
		return "", err
	}
	p.mu.Lock()
	t.name = name
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := build(ctx, address); err != nil {
		return "", err
	}
	// A database can be copied only while nobody is connected, and a closed pool's sessions take a moment to go.
	err = adminExec(admin,
		"ALTER DATABASE "+quoted+" WITH ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '"+name+"'")
	if err != nil {
		return "", errors.Join(fmt.Errorf("close template %s", name), err)
	}
	return name, nil
}
