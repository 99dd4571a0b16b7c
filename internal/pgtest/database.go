package pgtest

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

const (
	// poolSize is the maximum number of connections in a test's pool. Some tests run
	// several workers on one pool.
	poolSize = 20
	// poolCloseTimeout limits how long the end of a test waits for connections that the
	// test did not release.
	poolCloseTimeout = 10 * time.Second
)

// Database is the database of one test. It is dropped when the test ends, together with
// the roles that CreateRole created.
type Database struct {
	// Name is unique on the server.
	Name string
	// URL connects to the database as a superuser.
	URL string

	tb   testing.TB
	mu   sync.Mutex
	pool *pgxpool.Pool
	// passwords holds the password of each role that CreateRole created.
	passwords map[string]string
}

// New returns a new, empty UTF8 database. It takes about 30 ms. FromTemplate avoids
// repeating the same setup in each test.
func New(tb testing.TB) *Database {
	return shared.create(tb, "template0")
}

// NewEncoded returns a database like New in another encoding, such as SQL_ASCII, with the
// locale C.
func NewEncoded(tb testing.TB, encoding string) *Database {
	return shared.createAs(tb, "template0", "ENCODING '"+encoding+"' LOCALE 'C'")
}

// create copies a database. The copy is dropped when the test ends.
func (p *process) create(tb testing.TB, from string) *Database {
	return p.createAs(tb, from, "ENCODING 'UTF8'")
}

func (p *process) createAs(tb testing.TB, from, options string) *Database {
	name := uniqueName("sexton_test")
	d := &Database{Name: name, URL: Must(p.url(name))(tb), tb: tb, passwords: map[string]string{}}
	require.NoError(tb, p.createDatabase(name, from, options))
	tb.Cleanup(func() { d.drop(p) })
	return d
}

func (d *Database) drop(p *process) {
	statements := []string{dropStatement(d.Name)}
	for role := range d.passwords {
		// The role may own objects and hold privileges in the database, so that it can be
		// dropped only after the database.
		statements = append(statements, "DROP ROLE "+pgx.Identifier{role}.Sanitize())
	}
	if err := p.adminExec(statements...); err != nil {
		d.tb.Errorf("drop test database: %v", err)
	}
}

// Pool returns the test's connection pool, opened by the first call and closed when the
// test ends.
func (d *Database) Pool() *pgxpool.Pool {
	d.tb.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pool != nil {
		return d.pool
	}
	config := Must(pgxpool.ParseConfig(d.URL))(d.tb)
	config.MaxConns = poolSize
	pool := Must(pgxpool.NewWithConfig(context.Background(), config))(d.tb)
	d.pool = pool
	d.tb.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			pool.Close()
			close(closed)
		}()
		timer := time.NewTimer(poolCloseTimeout)
		defer timer.Stop()
		// Close waits for all connections in use. If the test failed before it released
		// one, Close would wait forever.
		select {
		case <-closed:
		case <-timer.C:
			d.tb.Errorf("the test did not release %d connections of its pool", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// Exec runs SQL and fails the test on an error. Without arguments, sql may hold several
// statements.
func (d *Database) Exec(sql string, args ...any) {
	d.tb.Helper()
	_, err := d.Pool().Exec(contextOf(d.tb), sql, args...)
	require.NoError(d.tb, err, "exec: %s", sql)
}

// Terminate ends the other sessions of the database that meet a condition on
// pg_stat_activity. It waits until they have ended and returns their number.
func (d *Database) Terminate(condition string, args ...any) int {
	d.tb.Helper()
	return len(d.Rows("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "+
		"WHERE datname = current_database() AND pid <> pg_backend_pid() AND "+condition, args...))
}

// Rows runs a query and returns all values in Postgres's text format, NULL as "NULL". The
// result is never nil.
func (d *Database) Rows(sql string, args ...any) [][]string {
	d.tb.Helper()
	// A single format code applies to all columns.
	options := []any{pgx.QueryResultFormats{pgx.TextFormatCode}}
	rows, err := d.Pool().Query(contextOf(d.tb), sql, append(options, args...)...)
	require.NoError(d.tb, err, "query: %s", sql)
	result, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]string, error) {
		values := []string{}
		for _, raw := range row.RawValues() {
			if raw == nil {
				values = append(values, "NULL")
				continue
			}
			values = append(values, string(raw))
		}
		return values, nil
	})
	require.NoError(d.tb, err, "query: %s", sql)
	return result
}

// LogLockTimeouts installs an event trigger that records the lock_timeout of each later
// DDL command on tables, indexes and triggers in the table public.lock_timeouts.
func (d *Database) LogLockTimeouts() {
	d.tb.Helper()
	d.Exec(`CREATE TABLE public.lock_timeouts (command text, value text);
		CREATE FUNCTION public.log_lock_timeout() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS
			$$ BEGIN INSERT INTO public.lock_timeouts VALUES (tg_tag, pg_catalog.current_setting('lock_timeout')); END $$;
		CREATE EVENT TRIGGER log_lock_timeouts ON ddl_command_end
			WHEN tag IN ('CREATE TABLE', 'ALTER TABLE', 'DROP TABLE', 'CREATE INDEX', 'DROP INDEX',
				'CREATE TRIGGER', 'DROP TRIGGER')
			EXECUTE FUNCTION public.log_lock_timeout()`)
}

// Query runs a query. It makes Database a Querier.
func (d *Database) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return d.Pool().Query(ctx, sql, args...)
}

// Version returns the major version of the tests' server.
func Version(tb testing.TB) int {
	var major int
	require.NoError(tb, shared.admin(func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int / 10000").Scan(&major)
	}))
	return major
}

// RequireVersion skips the test if the major version of the server is older than the
// given one.
func RequireVersion(tb testing.TB, major int) {
	tb.Helper()
	if got := Version(tb); got < major {
		tb.Skipf("the test needs Postgres %d, and the server has version %d", major, got)
	}
}

// CreateRole creates a role with LOGIN and no other privilege, and returns its name. The
// role is dropped when the test ends.
func (d *Database) CreateRole() string {
	d.tb.Helper()
	role, password := uniqueName("sexton_role"), uniqueName("secret")
	d.Exec("CREATE ROLE " + pgx.Identifier{role}.Sanitize() + " LOGIN PASSWORD '" + password + "'")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passwords[role] = password
	return role
}

// AsRole returns the database's URL with the given role as the user. If CreateRole
// created the role, the URL includes its password.
func (d *Database) AsRole(role string) string {
	d.tb.Helper()
	u := Must(url.Parse(d.URL))(d.tb)
	d.mu.Lock()
	defer d.mu.Unlock()
	u.User = url.User(role)
	if password, ok := d.passwords[role]; ok {
		u.User = url.UserPassword(role, password)
	}
	return u.String()
}

// contextOf returns the test's context. While cleanup functions run, that context is
// canceled, and contextOf returns a background context instead.
func contextOf(tb testing.TB) context.Context {
	if ctx := tb.Context(); ctx.Err() == nil {
		return ctx
	}
	return context.Background()
}
