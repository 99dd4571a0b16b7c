package doctor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/devpg"
	"sexton/internal/doctor"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

func TestShortTimeouts(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	role, name := p.connectAsNewRole(), p.Name
	p.Exec("ALTER ROLE " + role + " SET statement_timeout = '2s'")
	p.Exec("ALTER ROLE " + role + " SET idle_session_timeout = '1h'")
	p.Exec("ALTER ROLE " + role + " IN DATABASE " + name + " SET lock_timeout = '100ms'")
	p.Exec("ALTER DATABASE " + name + " SET idle_in_transaction_session_timeout = '1s'")
	p.target.Database.Pool.Reset()
	found := p.findings("settings")
	require.Len(t, found, 3)
	for i, want := range []string{
		"statement_timeout is 2s", "lock_timeout is 100ms",
		"idle_in_transaction_session_timeout is 1s",
	} {
		require.Equal(t, problem.Warning, found[i].Severity)
		require.Contains(t, found[i].Message, want+" for role "+role)
		p.Exec(found[i].Fix)
	}
	p.target.Database.Pool.Reset()
	require.Empty(t, p.findings("settings"), "no finding after the fixes")
}

func TestTimeoutOfTheConnectionString(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	p.connect(p.URL + "&statement_timeout=1s")
	require.Equal(t, "remove statement_timeout from the connection string", p.onlyFinding("settings").Fix)
}

func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	p.target.Connections = 10_000
	f := p.onlyFinding("connections")
	require.Equal(t, "max_connections", f.Object)
	require.Contains(t, f.Fix, "raise max_connections")

	// Postgres does not apply the limits of roles and databases to superusers.
	p.target.Connections = 5
	p.Exec("ALTER DATABASE " + p.Name + " CONNECTION LIMIT 4")
	require.Empty(t, p.findings("connections"))
	role := p.connectAsNewRole()
	p.Exec("ALTER ROLE " + role + " CONNECTION LIMIT 3")
	found := p.findings("connections")
	require.Len(t, found, 2)
	require.Equal(t, "role "+role, found[0].Object)
	require.Equal(t, problem.Warning, found[0].Severity)
	require.Equal(t,
		"other sessions use 0 of 3 connections, and a worker may open 5 (jobs.max_workers and the connections of components)", found[0].Message)
	require.Equal(t, fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT 5;", role), found[0].Fix)
	require.Equal(t, "database "+p.Name, found[1].Object)
}

// A standby has exactly one finding, and the check of LISTEN is skipped. The test
// restarts a private server as standby.
func TestStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	require.NoError(t, os.WriteFile(filepath.Join(server.DataDir(), "standby.signal"), nil, 0o600))
	require.NoError(t, server.Restart(t.Context(), devpg.Fast))
	db := pgtest.Must(database.Open(t.Context(), "main", server.URL("postgres"), "", dbtest.Names(), 2))(t)
	defer db.Close()
	report := doctor.NewReport()
	doctor.Examine(t.Context(), report, doctor.Target{Database: db})

	found := findingsOf(t, report, "recovery")
	require.Len(t, found, 1)
	require.Equal(t, problem.Error, found[0].Severity)
	require.Contains(t, found[0].Message, "in recovery")
	require.Contains(t, report.Checks, doctor.Check{Check: "listen", Database: "main", Result: doctor.Skipped})
	require.Len(t, unexpectedFindings(report), 1, "no other check has a finding")
}

func TestReadOnlyTransactions(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	p.Exec("ALTER DATABASE " + p.Name + " SET default_transaction_read_only = on")
	p.connect(p.URL)
	f := p.onlyFinding("recovery")
	require.Equal(t, problem.Error, f.Severity)
	require.Equal(t, "default_transaction_read_only", f.Object)
}

func TestRoleThatCannotSeeTransactions(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	role := p.connectAsNewRole()
	f := p.onlyFinding("statistics")
	require.Equal(t, problem.Warning, f.Severity)
	require.Equal(t, "GRANT pg_read_all_stats TO "+role+";", f.Fix)
	p.Exec(f.Fix)
	require.Empty(t, p.findings("statistics"))
}

func TestSearchPathWithSchemasOfOtherRoles(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	role, other := p.CreateRole(), p.CreateRole()
	p.Exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE SCHEMA shared; GRANT USAGE ON SCHEMA shared TO PUBLIC; GRANT CREATE ON SCHEMA public TO " + role)
	p.Exec("ALTER ROLE " + role + " SET search_path = shared, public")
	p.connect(p.AsRole(role))
	require.Empty(t, p.findings("search_path"), "direct connections set their own search_path")

	p.connect(p.AsRole(role) + "&default_query_exec_mode=exec")
	require.Empty(t, p.findings("search_path"), "only the role itself may create objects in the schemas")
	p.Exec("GRANT CREATE ON SCHEMA shared TO " + other)
	found := p.onlyFinding("search_path")
	require.Equal(t, problem.Error, found.Severity)
	require.Contains(t, found.Message, "sessions of role "+role+
		" begin with search_path shared, public, and other roles may create functions in shared,")
	p.Exec("ALTER ROLE " + role + " SET search_path = pg_catalog, pg_temp")
	require.Contains(t, found.Fix, "ALTER ROLE "+role+" SET search_path = pg_catalog, pg_temp")
	p.target.Database.Pool.Reset()
	require.Empty(t, p.findings("search_path"), "no finding after the fix")
}

// Before Postgres 15, every role may create objects in schema public by default.
func TestSearchPathWithSchemaPublic(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	role := p.CreateRole()
	p.CreateRole()
	p.connect(p.AsRole(role) + "&default_query_exec_mode=exec")
	if pgtest.Version(t) < 15 {
		require.Contains(t, p.onlyFinding("search_path").Message, "other roles may create functions in public,")
		p.Exec("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
		p.target.Database.Pool.Reset()
	}
	require.Empty(t, p.findings("search_path"))
}

func TestSuperusers(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	require.Equal(t, problem.Info, p.onlyFinding("superusers").Severity, "no worker connects as the tests' own role")
	worker, err := pgx.Connect(t.Context(), p.URL+"&application_name=sexton%20(worker)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, worker.Close(context.Background())) })
	found := p.onlyFinding("superusers")
	require.Equal(t, problem.Warning, found.Severity)
	require.Contains(t, found.Message, "a worker connects as ")

	p.connect(p.AsRole(p.CreateRole()))
	require.Contains(t, p.onlyFinding("superusers").Message, "a worker connects as ", "a role without privileges also finds it")
}

// unlistenTracer runs UNLISTEN after each LISTEN. Through a transaction pooler, LISTEN
// has no effect either, because the next transaction uses another session.
type unlistenTracer struct{}

func (unlistenTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (unlistenTracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	if data.CommandTag.String() == "LISTEN" {
		_ = conn.PgConn().Exec(ctx, "UNLISTEN *").Close()
	}
}

func TestNotificationThatDoesNotArrive(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	direct := p.target.Database.Direct.Copy()
	direct.Tracer = unlistenTracer{}
	p.target.Database.Direct, p.target.NotifyTimeout = direct, 50*time.Millisecond
	f := p.onlyFinding("listen")
	require.Equal(t, problem.Warning, f.Severity)
	require.Contains(t, f.Message, "a notification did not arrive within 50ms, probably because of a transaction pooler")
	require.Equal(t, "set listen_url to a direct connection without a pooler", f.Fix)
}
