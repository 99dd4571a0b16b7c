package bench_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/bench"
	"sexton/internal/pgtest"
)

// The database of a benchmark has no objects from template1. Any role that may connect to
// template1 can create functions there, which the benchmark could call with its
// operator's privileges.
func TestDatabasesAreCopiesOfTemplate0(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	leaving := pgtest.Connect(t, server.URL("template1"))
	pgtest.Exec(t, leaving, "CREATE TABLE from_template1 ()")
	require.NoError(t, leaving.Close(t.Context()))
	admin := pgtest.Must(pgxpool.New(t.Context(), server.URL("postgres")))(t)
	t.Cleanup(admin.Close)
	url, drop := pgtest.Must2((&bench.Cluster{
		Admin:    admin,
		AdminURL: server.URL("postgres"),
	}).CreateDatabase(t.Context()))(t)
	require.True(t, pgtest.Scalar[bool](t, pgtest.Connect(t, url),
		"SELECT to_regclass('public.from_template1') IS NULL"))
	require.NoError(t, drop())
}
