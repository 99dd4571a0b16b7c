package database_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/pgtest"
)

// Left to itself Postgres plans this anew for each array.
func TestQueriesBehindKeepTheirPlan(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.New(t).URL)
	const sql = "SELECT count(*) FROM pg_class WHERE oid = ANY ($1::oid[])"
	for range 10 {
		var kept string
		var n int
		require.NoError(t, database.Behind(t.Context(), conn, "SELECT "+database.GenericPlan, nil, []any{&kept}, sql, []uint32{1259, 1249}).Scan(&n))
		require.Equal(t, 2, n)
		require.Equal(t, "force_generic_plan", kept)
	}
	var generic, custom int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement = $1", sql).Scan(&generic, &custom))
	require.Equal(t, 10, generic)
	require.Zero(t, custom)
	mode := pgtest.Scalar[string](t, conn, "SHOW plan_cache_mode")
	require.Equal(t, "auto", mode, "the connection goes on as it was")
	require.Error(t, database.Behind(t.Context(), conn, "SELECT 1/0", nil, []any{new(int)}, sql, []uint32{}).Scan(new(int)))
	require.NoError(t, conn.Ping(t.Context()))
}
