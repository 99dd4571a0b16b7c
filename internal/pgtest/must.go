package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
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

// Exec runs SQL on a connection, in a transaction or on a pool, and fails the test on an error.
func Exec(tb testing.TB, on interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any,
) {
	tb.Helper()
	Must(on.Exec(tb.Context(), sql, args...))(tb)
}
