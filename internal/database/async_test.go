package database_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/pgschema"
	"sexton/internal/pgtest"
)

func TestWorkersCommitAsynchronouslyOnOneServerAlone(t *testing.T) {
	t.Parallel()
	first, second, far := pgtest.New(t), pgtest.New(t), pgtest.NewOn(t, pgtest.Server(t))
	first.Exec("ALTER DATABASE " + first.Name + " SET synchronous_commit = 'local'")
	type wants struct{ own, waiting string }
	for name, test := range map[string]struct {
		urls   []string
		direct string
		want   wants
	}{
		"one database":        {[]string{first.URL}, "", wants{"off", "local"}},
		"two on one server":   {[]string{first.URL, second.URL}, "", wants{"off", "local"}},
		"two servers":         {[]string{first.URL, far.URL}, "", wants{"local", ""}},
		"pooler":              {[]string{query(t, first.URL, "&default_query_exec_mode=exec")}, "", wants{"local", ""}},
		"pooler for another":  {[]string{first.URL, query(t, second.URL, "&default_query_exec_mode=exec")}, "", wants{"local", ""}},
		"pooler and listener": {[]string{first.URL}, second.URL, wants{"local", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			databases := make([]database.Database, len(test.urls))
			for i, url := range test.urls {
				direct := ""
				if i == 0 {
					direct = test.direct
				}
				databases[i] = pgtest.Must(database.Open(t.Context(), "main", url, direct, pgschema.Names{}, 4))(t)
			}
			require.NoError(t, database.ForWork(t.Context(), databases))
			kept := databases[0].Async()
			require.NoError(t, database.ForWork(t.Context(), databases))
			for i := range databases {
				t.Cleanup(databases[i].Close)
			}
			if test.want.own == "off" {
				require.Same(t, kept, databases[0].Async(), "the second time")
			}
			show := func(pool *pgxpool.Pool, setting string) (value string) {
				require.NoError(t, pool.QueryRow(t.Context(), "SELECT coalesce(current_setting($1, true), '')", setting).Scan(&value))
				return value
			}
			db := databases[0]
			require.Equal(t, test.want, wants{show(db.Async(), "synchronous_commit"), show(db.Async(), "sexton.synchronous_commit")})
			require.Equal(t, "local", show(db.Pool, "synchronous_commit"), "what an operator was told waits")
			require.NotEmpty(t, show(db.Sessions, "server_version"), "lanes connect")
		})
	}
}

// A database that moves to another server, as in a failover, loses its connections.
func TestNoCommitIsAsynchronousOnceADatabaseHasMoved(t *testing.T) {
	t.Parallel()
	first, second, far := pgtest.New(t), pgtest.New(t), pgtest.NewOn(t, pgtest.Server(t))
	far.Exec("CREATE DATABASE " + second.Name)
	moving := newDoor(t, second.URL)
	databases := make([]database.Database, 2)
	for i, url := range []string{first.URL, moving.url} {
		databases[i] = pgtest.Must(database.Open(t.Context(), "main", url, "", pgschema.Names{}, 4))(t)
	}
	require.NoError(t, database.ForWork(t.Context(), databases))
	for i := range databases {
		t.Cleanup(databases[i].Close)
	}
	commits := func(want string) {
		t.Helper()
		pgtest.WaitFor(t, "commits to be "+want, func(ctx context.Context) (bool, error) {
			all := true
			for _, db := range databases {
				var is string
				// An error is that of a connection that is lost.
				err := db.Async().QueryRow(ctx, "SELECT current_setting('synchronous_commit')").Scan(&is)
				all = all && err == nil && is == want
			}
			return all, nil
		})
	}
	commits("off")
	moving.leadTo(far.URL)
	commits("on")
	moving.leadTo(second.URL)
	commits("off")
}

// door is an address that leads to one server or another.
type door struct {
	url string

	t        *testing.T
	mu       sync.Mutex
	socket   string
	passages []net.Conn
}

func newDoor(t *testing.T, url string) *door {
	t.Helper()
	d := &door{t: t}
	d.leadTo(url)
	listener := pgtest.Must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { require.NoError(t, listener.Close()); d.leadTo(url) })
	settings := pgtest.Must(pgx.ParseConfig(url))(t)
	d.url = fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", settings.User, listener.Addr(), settings.Database)
	go func() {
		for {
			outer, err := listener.Accept()
			if err != nil {
				return
			}
			d.mu.Lock()
			inner, err := net.Dial("unix", d.socket)
			if err == nil {
				d.passages = append(d.passages, outer, inner)
				go func() { _, _ = io.Copy(inner, outer); _ = inner.Close() }()
				go func() { _, _ = io.Copy(outer, inner); _ = outer.Close() }()
			}
			d.mu.Unlock()
		}
	}()
	return d
}

// leadTo ends all connections.
func (d *door) leadTo(url string) {
	d.t.Helper()
	settings := pgtest.Must(pgx.ParseConfig(url))(d.t)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.socket = fmt.Sprintf("%s/.s.PGSQL.%d", settings.Host, settings.Port)
	for _, passage := range d.passages {
		_ = passage.Close()
	}
	d.passages = nil
}
