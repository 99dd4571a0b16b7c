package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Must hands on the value of a call that must succeed: pgtest.Must(os.ReadFile(path))(t).
func Must[T any](value T, err error) func(tb require.TestingT) T {
	return func(tb require.TestingT) T {
		if helper, ok := tb.(interface{ Helper() }); ok {
			helper.Helper()
		}
		require.NoError(tb, err)
		return value
	}
}

// Must2 is Must for two values.
func Must2[T, U any](one T, two U, err error) func(tb require.TestingT) (T, U) {
	return func(tb require.TestingT) (T, U) { return Must(one, err)(tb), two }
}

// Querier is a connection, a transaction, a pool or a Database.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Exec runs SQL on a connection, in a transaction or on a pool, and fails the test on an error.
func Exec(tb testing.TB, on interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any,
) {
	tb.Helper()
	Must(on.Exec(tb.Context(), sql, args...))(tb)
}

// Scalar runs a query that returns one row of one column and returns the value.
func Scalar[T any](tb testing.TB, on Querier, sql string, args ...any) T {
	tb.Helper()
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

// Await waits until a query answers true.
func Await(tb testing.TB, on Querier, what, sql string, args ...any) {
	tb.Helper()
	WaitFor(tb, what, func(ctx context.Context) (bool, error) { return scalar[bool](ctx, on, sql, args...) })
}

// Connect returns a session that ends with the test.
func Connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	return ConnectAs(tb, Must(pgx.ParseConfig(url))(tb))
}

// ConnectAs is Connect with settings.
func ConnectAs(tb testing.TB, settings *pgx.ConnConfig) *pgx.Conn {
	tb.Helper()
	conn := Must(pgx.ConnectConfig(tb.Context(), settings))(tb)
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Acquire returns a connection of the pool, which has it back at the end of the test.
func Acquire(tb testing.TB, pool *pgxpool.Pool) *pgxpool.Conn {
	tb.Helper()
	conn := Must(pool.Acquire(tb.Context()))(tb)
	tb.Cleanup(conn.Release)
	return conn
}

// Begin opens a transaction that runs statements. Where the test leaves it open, its end rolls it back.
func Begin(tb testing.TB, on interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}, statements ...string,
) pgx.Tx {
	tb.Helper()
	tx := Must(on.Begin(tb.Context()))(tb)
	tb.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	for _, statement := range statements {
		Exec(tb, tx, statement)
	}
	return tx
}
