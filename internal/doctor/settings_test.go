package doctor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/doctor"
	"sexton/internal/problem"
)

func TestTimeoutsThatAreTooShort(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	role, name := p.as(), p.Name
	p.Exec("ALTER ROLE " + role + " SET statement_timeout = '2s'")
	p.Exec("ALTER ROLE " + role + " SET idle_session_timeout = '1h'")
	p.Exec("ALTER ROLE " + role + " IN DATABASE " + name + " SET lock_timeout = '100ms'")
	p.Exec("ALTER DATABASE " + name + " SET idle_in_transaction_session_timeout = '1s'")
	p.target.Database.Pool.Reset()
	found := p.findings("settings")
	require.Len(t, found, 3)
	for i, want := range []string{"statement_timeout is 2s", "lock_timeout is 100ms", "idle_in_transaction_session_timeout is 1s"} {
		require.Equal(t, problem.Warning, found[i].Severity)
		require.Contains(t, found[i].Message, want+" for role "+role)
		p.Exec(found[i].Fix)
	}
	p.target.Database.Pool.Reset()
	require.Empty(t, p.findings("settings"), "the fixes fix it")
}

func TestTimeoutOfTheConnectionString(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.connect(p.URL + "&statement_timeout=1s")
	require.Equal(t, "remove statement_timeout from the connection string", p.one("settings").Fix)
}

func TestIsolationThatIsTooStrict(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	role := p.as()
	p.Exec("ALTER DATABASE " + p.Name + " SET default_transaction_isolation = 'repeatable read'")
	p.target.Database.Pool.Reset()
	found := p.one("settings")
	require.Equal(t, "default_transaction_isolation", found.Object)
	require.Contains(t, found.Message, "transactions of role "+role+" begin at repeatable read")
	p.Exec(found.Fix)
	p.target.Database.Pool.Reset()
	require.Empty(t, p.findings("settings"), "the fix fixes it")
}

func TestRoomForConnections(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.target.Connections = 10_000
	f := p.one("connections")
	require.Equal(t, "max_connections", f.Object)
	require.Contains(t, f.Fix, "raise max_connections")

	// Neither holds for a superuser.
	p.target.Connections = 5
	p.Exec("ALTER DATABASE " + p.Name + " CONNECTION LIMIT 4")
	require.Empty(t, p.findings("connections"))
	role := p.as()
	p.Exec("ALTER ROLE " + role + " CONNECTION LIMIT 3")
	found := p.findings("connections")
	require.Len(t, found, 2)
	require.Equal(t, "role "+role, found[0].Object)
	require.Equal(t, problem.Warning, found[0].Severity)
	require.Equal(t, "of 3 connections others have 0, and a worker may open 5", found[0].Message)
	require.Equal(t, fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT 5; or lower jobs.max_workers", role), found[0].Fix)
	require.Equal(t, "database "+p.Name, found[1].Object)
}

func TestRoomForConnectionsToSeveralDatabases(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	both := []string{"main", "ci"}
	p.target.Server = doctor.Share{Connections: 10_000, Databases: both}
	require.Contains(t, p.one("connections").Message, "a worker may open 10000 to databases main, ci together")
	p.target.Server = doctor.Share{Connections: 10_000, Databases: []string{"main"}}
	require.Empty(t, p.findings("connections"), "it is alone there")
}
