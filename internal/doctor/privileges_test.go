package doctor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/doctor"
	"sexton/internal/problem"
	"sexton/triggers"
)

func TestFixesGrantAllPrivilegesOfAWorker(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	role := p.connectAsNewRole()
	p.Exec("REVOKE USAGE ON SCHEMA public FROM PUBLIC")
	found := p.findings("privileges")
	require.Greater(t, len(found), 10)
	require.Contains(t, found, doctor.Finding{
		Severity: problem.Error, Check: "privileges", Database: "main", Object: "sexton",
		Message: "role " + role + " lacks USAGE on schema sexton", Fix: "GRANT USAGE ON SCHEMA sexton TO " + role + ";",
	})
	for _, f := range found {
		p.Exec(f.Fix)
	}
	require.Empty(t, p.findings("privileges"))

	p.Exec("REVOKE UPDATE, DELETE ON loose_foreign_keys_deleted_records FROM " + role)
	p.Exec("REVOKE USAGE ON SEQUENCE sexton.river_job_id_seq FROM " + role)
	p.Exec("REVOKE EXECUTE ON FUNCTION sexton.enqueue(text, jsonb, timestamptz) FROM " + role)
	p.Exec("REVOKE SELECT ON pg_catalog.pg_locks FROM PUBLIC")
	var fixes []string
	for _, f := range p.findings("privileges") {
		fixes = append(fixes, f.Fix)
	}
	require.ElementsMatch(t, []string{
		"GRANT DELETE, UPDATE ON TABLE public.loose_foreign_keys_deleted_records TO " + role + ";",
		"GRANT USAGE ON SEQUENCE sexton.river_job_id_seq TO " + role + ";",
		"GRANT EXECUTE ON FUNCTION sexton.enqueue(kind text, args jsonb, run_at timestamp with time zone) TO " + role +
			";",
		"GRANT SELECT ON TABLE pg_catalog.pg_locks TO " + role + ";",
	}, fixes)
}

func TestRowLevelSecurityOnTombstones(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	role := p.connectAsNewRole()
	for _, f := range p.findings("privileges") {
		p.Exec(f.Fix)
	}
	p.Exec("ALTER TABLE loose_foreign_keys_deleted_records ENABLE ROW LEVEL SECURITY")
	f := p.onlyFinding("privileges")
	require.Equal(t, "public.loose_foreign_keys_deleted_records", f.Object)
	require.Equal(t, "ALTER ROLE "+role+" BYPASSRLS;", f.Fix)
	p.Exec(f.Fix)
	require.Empty(t, p.findings("privileges"))
}

func TestPartitionsWithoutTriggerPrivileges(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	owner := p.CreateRole()
	p.Exec(`CREATE TABLE "Builds" (id bigint PRIMARY KEY) PARTITION BY RANGE (id); ALTER TABLE "Builds" OWNER TO ` +
		owner)
	parents := []triggers.Parent{
		{Schema: "public", Table: "Builds", KeyColumns: []string{"id"}},
		{Schema: "public", Table: "parents", KeyColumns: []string{"id"}},
	}
	conn, err := pgx.Connect(t.Context(), p.URL)
	require.NoError(t, err)
	_, err = triggers.Install(t.Context(), conn, triggers.Config{TrackedSchema: "public"}, parents)
	require.NoError(t, err)
	p.target.Parents = append(p.target.Parents, doctor.Parent{
		Schema: "public", Table: "Builds",
		Recorded: `public."Builds"`,
	})
	require.Empty(t, p.findings("partitions"))

	role := p.connectAsNewRole()
	f := p.onlyFinding("partitions")
	require.Equal(t, problem.Warning, f.Severity)
	require.Equal(t, `public."Builds"`, f.Object)
	require.Equal(t, "GRANT "+owner+" TO "+role+";", f.Fix)
	require.NoError(t, conn.Close(t.Context()))
	p.Exec("GRANT " + owner + " TO " + role)
	require.Equal(t, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO "+role+";", p.onlyFinding("partitions").Fix)
	p.Exec("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO " + role)
	require.Empty(t, p.findings("partitions"))
}

func TestOverdueTombstones(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	p.Exec(tombstone +
		"('public.parents', 1, now() - interval '50 minutes'), ('public.parents', 2, now() + interval '1 hour')")
	require.Empty(t, p.findings("tombstones"))
	p.Exec(tombstone + "('public.parents', 3, '2026-01-02T03:04:05Z')")
	f := p.onlyFinding("tombstones")
	require.Equal(t, problem.Warning, f.Severity)
	require.Equal(t, "a tombstone of public.parents has been due since 2026-01-02T03:04:05Z", f.Message)
}

func TestOldTransactions(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	conn, err := pgx.Connect(t.Context(), p.URL+"&application_name=forgotten")
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	require.Empty(t, p.findings("transactions"), "the transaction is younger than the limit")

	p.target.OldTransaction = time.Nanosecond
	f := p.onlyFinding("transactions")
	require.Equal(t, problem.Warning, f.Severity)
	require.Equal(t, fmt.Sprintf("pid %d", conn.PgConn().PID()), f.Object)
	require.Contains(t, f.Message, "(forgotten, idle in transaction) has had a transaction open since ")
	require.Equal(t, fmt.Sprintf("end the transaction, or run SELECT pg_catalog.pg_terminate_backend(%d)", conn.PgConn().PID()),
		f.Fix)
}

func TestPreparedTransactions(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	quoted := "'" + p.Name + "''s'"
	p.Exec("BEGIN; INSERT INTO parents VALUES (1); PREPARE TRANSACTION " + quoted)
	// End the prepared transaction, because a database with a prepared transaction cannot
	// be dropped.
	t.Cleanup(func() { p.Exec("ROLLBACK PREPARED " + quoted) })
	require.Empty(t, p.findings("prepared_transactions"), "the transaction is younger than the limit")

	p.target.OldTransaction = time.Nanosecond
	f := p.onlyFinding("prepared_transactions")
	require.Equal(t, problem.Warning, f.Severity)
	require.Equal(t, quoted, f.Object)
	require.Contains(t, f.Fix, "ROLLBACK PREPARED "+quoted)
}

const insertClient = "INSERT INTO sexton.clients (client_id, host, pid, started_at, seen_at, deaf) VALUES "

// examineWorkers returns the report of ExamineWorkers.
func (p *testDatabase) examineWorkers() *doctor.Report {
	p.t.Helper()
	report := doctor.NewReport()
	doctor.ExamineWorkers(p.t.Context(), report, doctor.Workers{Target: p.target, Silence: time.Minute})
	return report
}

func TestNoWorker(t *testing.T) {
	t.Parallel()
	p := healthyDatabase(t)
	p.Exec(insertClient + "('dead', 'h', 1, now() - interval '1 hour', now() - interval '2 minutes', '{}')")
	found := findingsOf(t, p.examineWorkers(), "workers")
	require.Len(t, found, 1)
	require.Equal(t, problem.Info, found[0].Severity)
	require.Equal(t, "sexton run", found[0].Fix)
}
