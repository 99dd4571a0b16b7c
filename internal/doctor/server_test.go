package doctor_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/devpg"
	"sexton/internal/doctor"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

// One private server serves for what concerns all databases of a server.
func TestAStandbyWithoutAutovacuum(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	require.NoError(t, os.WriteFile(filepath.Join(server.DataDir(), "standby.signal"), nil, 0o600))
	settings := filepath.Join(server.DataDir(), "postgresql.auto.conf")
	require.NoError(t, os.WriteFile(settings, []byte("autovacuum = off\n"), 0o600))
	require.NoError(t, server.Restart(t.Context(), devpg.Fast))
	db := pgtest.Must(database.Open(t.Context(), "main", server.URL("postgres"), "", dbtest.Names(), 2))(t)
	defer db.Close()
	report := doctor.NewReport()
	doctor.Examine(t.Context(), report, doctor.Target{Database: db})

	found := pick(t, report, "recovery")
	require.Len(t, found, 1)
	require.Equal(t, problem.Error, found[0].Severity)
	require.Contains(t, found[0].Message, "in recovery")
	require.Contains(t, report.Checks, doctor.Check{Check: "listen", Database: "main", Result: doctor.Skipped})
	found = pick(t, report, "autovacuum")
	require.Len(t, found, 1)
	require.Equal(t, "ALTER SYSTEM SET autovacuum = on; SELECT pg_catalog.pg_reload_conf()", found[0].Fix)
	require.Len(t, others(report), 2, "nothing else fails there")
}

func TestReadOnlyTransactions(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Exec("ALTER DATABASE " + p.Name + " SET default_transaction_read_only = on")
	p.connect(p.URL)
	f := p.one("recovery")
	require.Equal(t, problem.Error, f.Severity)
	require.Equal(t, "default_transaction_read_only", f.Object)
}

func TestQueueTablesWithoutAutovacuum(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	p.Exec("ALTER TABLE loose_foreign_keys_deleted_records SET (autovacuum_enabled = no); ALTER TABLE sexton.river_job SET (autovacuum_enabled = 0)")
	p.Exec("ALTER TABLE sexton.leases SET (autovacuum_enabled = yes); ALTER TABLE children SET (autovacuum_enabled = false)")
	found := p.findings("autovacuum")
	require.Len(t, found, 2)
	for _, f := range found {
		require.Equal(t, problem.Warning, f.Severity)
		p.Exec(f.Fix)
	}
	require.Equal(t, "public.loose_foreign_keys_deleted_records", found[0].Object)
	require.Equal(t, "sexton.river_job", found[1].Object)
	require.Empty(t, p.findings("autovacuum"), "the fixes fix it")
}

func TestARoleThatDoesNotSeeTransactions(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	role := p.as()
	f := p.one("statistics")
	require.Equal(t, problem.Warning, f.Severity)
	require.Equal(t, "GRANT pg_read_all_stats TO "+role, f.Fix)
	p.Exec(f.Fix)
	require.Empty(t, p.findings("statistics"))
}

func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	for _, shift := range []time.Duration{-time.Hour, time.Hour} {
		p.target.Now = func() time.Time { return time.Now().Add(shift) }
		require.Equal(t, problem.Error, p.one("clock").Severity)
	}
}
