package dbtest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/lease"
)

// Counting makes batches under the lease count for a run of their own, until the function that it returns expects that they have
// counted, by session, what the statistics say: rows by field and label.
func Counting(tb testing.TB, granted *lease.Lease, sessions ...*pgx.Conn) func(want map[[2]string]int64) {
	tb.Helper()
	run := rand.Int64()
	granted.For(run)
	return func(want map[[2]string]int64) {
		tb.Helper()
		granted.For(0)
		found := map[[2]string]int64{}
		if slices.ContainsFunc(sessions, (*pgx.Conn).IsClosed) {
			return // A test of just that.
		}
		for _, session := range sessions {
			rows, err := session.Query(tb.Context(), "SELECT field, label, rows FROM sexton.run_counts WHERE run_id = $1", run)
			require.NoError(tb, err)
			var field, label string
			var n int64
			_, err = pgx.ForEachRow(rows, []any{&field, &label, &n}, func() error { found[[2]string{field, label}] += n; return nil })
			require.NoError(tb, err)
		}
		for of, n := range want {
			if n == 0 {
				delete(want, of)
			}
		}
		require.Equal(tb, want, found, "what batches have counted must equal the statistics")
	}
}
