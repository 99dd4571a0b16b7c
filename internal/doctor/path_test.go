package doctor_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/problem"
)

func TestPathWithSchemasOfOthers(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	role, other := p.CreateRole(), p.CreateRole()
	p.Exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE SCHEMA shared; GRANT USAGE ON SCHEMA shared TO PUBLIC; GRANT CREATE ON SCHEMA public TO " + role)
	p.Exec("ALTER ROLE " + role + " SET search_path = shared, public")
	p.connect(p.AsRole(role))
	require.Empty(t, p.findings("search_path"), "direct sessions have a path of their own")

	p.connect(p.AsRole(role) + "&default_query_exec_mode=exec")
	require.Empty(t, p.findings("search_path"), "only the role itself may create there")
	p.Exec("GRANT CREATE ON SCHEMA shared TO " + other)
	found := p.one("search_path")
	require.Equal(t, problem.Error, found.Severity)
	require.Contains(t, found.Message, "sessions of role "+role+" begin with search_path shared, public, and other roles may create functions in shared,")
	p.Exec("ALTER ROLE " + role + " SET search_path = pg_catalog, pg_temp")
	require.Contains(t, found.Fix, "ALTER ROLE "+role+" SET search_path = pg_catalog, pg_temp")
	p.target.Database.Pool.Reset()
	require.Empty(t, p.findings("search_path"), "the fix fixes it")
}

func TestSuperusers(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	require.Equal(t, problem.Info, p.one("search_path").Severity, "the role that asks is the tests' own")
	worker, err := pgx.Connect(t.Context(), p.URL+"&application_name=sexton")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, worker.Close(context.Background())) })
	_, err = worker.Exec(t.Context(), `LISTEN "sexton_wake"`)
	require.NoError(t, err)
	found := p.one("search_path")
	require.Equal(t, problem.Warning, found.Severity)
	require.Contains(t, found.Message, "a worker connects as ")

	p.connect(p.AsRole(p.CreateRole()))
	require.Empty(t, p.findings("search_path"), "an ordinary role, which cannot see what the worker does")
}
