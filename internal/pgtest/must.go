package pgtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Must returns the value of a call that must succeed: pgtest.Must(os.ReadFile(path))(t).
func Must[T any](value T, err error) func(tb require.TestingT) T {
	return func(tb require.TestingT) T {
		require.NoError(tb, err)
		return value
	}
}

// Must2 returns the two values of a call that must succeed.
func Must2[T, U any](one T, two U, err error) func(tb require.TestingT) (T, U) {
	return func(tb require.TestingT) (T, U) { return Must(one, err)(tb), two }
}

// Each runs a parallel subtest for each case of a table.
func Each[T any](t *testing.T, cases map[string]T, test func(t *testing.T, name string, one T)) {
	for name, one := range cases {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, name, one) })
	}
}

// Few returns the named cases of a table, or all cases if Long is set.
func Few[T any](tb testing.TB, cases map[string]T, names ...string) map[string]T {
	tb.Helper()
	if Long {
		return cases
	}
	few := map[string]T{}
	for _, name := range names {
		require.Contains(tb, cases, name)
		few[name] = cases[name]
	}
	return few
}

// Querier runs queries: a connection, a transaction, a pool or a Database.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Exec runs SQL on a connection, in a transaction or on a pool, and fails the test on an
// error.
func Exec(tb testing.TB, on interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any,
) {
	Must(on.Exec(tb.Context(), sql, args...))(tb)
}

// Scalar runs a query that returns one row of one column and returns the value.
func Scalar[T any](tb testing.TB, on Querier, sql string, args ...any) T {
	value, err := scalar[T](contextOf(tb), on, sql, args...)
	require.NoError(tb, err, "query: %s", sql)
	return value
}

func scalar[T any](ctx context.Context, on Querier, sql string, args ...any) (value T, err error) {
	rows, err := on.Query(ctx, sql, args...)
	if err != nil {
		return value, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
}

// Await waits until a query returns true. The text what names the condition in failure
// messages.
func Await(tb testing.TB, on Querier, what, sql string, args ...any) {
	WaitFor(tb, what, func(ctx context.Context) (bool, error) { return scalar[bool](ctx, on, sql, args...) })
}

// Connect opens a connection. It is closed when the test ends.
func Connect(tb testing.TB, url string) *pgx.Conn {
	return ConnectAs(tb, Must(pgx.ParseConfig(url))(tb))
}

// ConnectAs opens a connection with the given settings. It is closed when the test ends.
func ConnectAs(tb testing.TB, settings *pgx.ConnConfig) *pgx.Conn {
	conn := Must(pgx.ConnectConfig(tb.Context(), settings))(tb)
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Acquire acquires a connection of the pool. It is released when the test ends.
func Acquire(tb testing.TB, pool *pgxpool.Pool) *pgxpool.Conn {
	conn := Must(pool.Acquire(tb.Context()))(tb)
	tb.Cleanup(conn.Release)
	return conn
}

// Begin opens a transaction and runs statements in it. If the transaction is still open
// when the test ends, it is rolled back.
func Begin(tb testing.TB, on interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}, statements ...string,
) pgx.Tx {
	tx := Must(on.Begin(tb.Context()))(tb)
	tb.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	for _, statement := range statements {
		Exec(tb, tx, statement)
	}
	return tx
}

const (
	waitTimeout = 2 * time.Minute
	pollSoon    = 5 * time.Millisecond
	pollSeldom  = 50 * time.Millisecond
)

// AwaitLockWait waits until another session has waited for a lock of the session pid for
// longer than the given time. Tests use it to show that no shorter lock or statement
// timeout applies.
func AwaitLockWait(tb testing.TB, d *Database, pid uint32, longer time.Duration) {
	WaitFor(tb, "a session to wait for a lock for more than "+longer.String(), func(ctx context.Context) (bool, error) {
		var waited bool
		err := d.Pool().QueryRow(ctx, `SELECT EXISTS (
			SELECT FROM pg_locks AS wanted
			WHERE NOT wanted.granted AND $1 = ANY (pg_blocking_pids(wanted.pid))
			  AND clock_timestamp() - wanted.waitstart > make_interval(secs => $2))`, int32(pid), longer.Seconds()).Scan(&waited)
		return waited, err
	})
}

// WaitFor polls the condition until it is true. It fails the test after two minutes or if
// the condition returns an error. The text what names the condition in the failure
// message. WaitFor must run on the test's goroutine.
func WaitFor(tb testing.TB, what string, condition func(ctx context.Context) (bool, error)) {
	ctx, cancel := context.WithTimeout(tb.Context(), waitTimeout)
	defer cancel()
	held := Poll(ctx, func() bool {
		ok, err := condition(ctx)
		if ok && err == nil {
			return true
		}
		require.NoError(tb, ctx.Err(), "timed out waiting for %s (last error: %v)", what, err)
		require.NoError(tb, err, "while waiting for %s", what)
		return false
	})
	require.True(tb, held, "timed out after %s waiting for %s", waitTimeout, what)
}

// Poll calls the condition repeatedly until it is true, and reports false if the context
// ended first. The pauses grow, because on two processors the queries of waiting tests
// slow down the work that they wait for.
func Poll(ctx context.Context, condition func() bool) bool {
	for pause := pollSoon; !condition(); pause = min(pause+pause/4, pollSeldom) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Golden fails the test if the text differs from the named file in testdata. With
// GOLDEN=write in the environment it first writes the text to the file.
func Golden(tb testing.TB, name, got string) {
	path := filepath.Join("testdata", name)
	if os.Getenv("GOLDEN") == "write" {
		require.NoError(tb, os.MkdirAll("testdata", 0o755))
		require.NoError(tb, os.WriteFile(path, []byte(got), 0o600))
	}
	want := Must(os.ReadFile(path))(tb)
	require.Equal(tb, string(want), got,
		"statements decide plans, locks and speed; if the change is intended, run GOLDEN=write go test")
}

// Statements collects SQL statements with titles, one per line. It replaces line breaks
// by ⏎.
type Statements struct{ strings.Builder }

// Add returns a function that appends a statement under the title, together with the Go
// types of its arguments.
func (s *Statements) Add(title string) func(sql string, args []any) {
	return func(sql string, args []any) {
		types := make([]string, len(args))
		for i, arg := range args {
			types[i] = fmt.Sprintf("%T", arg)
		}
		fmt.Fprintf(s, "%s: %s -- %s\n", title, strings.ReplaceAll(sql, "\n", "⏎"), strings.Join(types, ", "))
	}
}
