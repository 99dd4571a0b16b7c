package doctor_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/doctor"
	"sexton/internal/problem"
	"sexton/triggers"
)

func TestTheFixesGrantEverythingThatAWorkerNeeds(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	role := p.as()
	p.Exec("REVOKE USAGE ON SCHEMA public FROM PUBLIC")
	found := p.findings("privileges")
	require.Greater(t, len(found), 10)
	require.Equal(t, doctor.Finding{
		Severity: problem.Error, Check: "privileges", Database: "main", Object: "sexton",
		Message: "role " + role + " lacks USAGE on schema sexton", Fix: "GRANT USAGE ON SCHEMA sexton TO " + role,
	}, found[0])
	for _, f := range found {
		p.Exec(f.Fix)
	}
	require.Empty(t, p.findings("privileges"))

	p.Exec("REVOKE UPDATE, DELETE ON loose_foreign_keys_deleted_records FROM " + role)
	p.Exec("REVOKE USAGE ON SEQUENCE sexton.river_job_id_seq FROM " + role)
	p.Exec("REVOKE EXECUTE ON FUNCTION sexton.enqueue(text, jsonb, timestamptz) FROM " + role)
	var fixes []string
	for _, f := range p.findings("privileges") {
		fixes = append(fixes, f.Fix)
	}
	require.ElementsMatch(t, []string{
		"GRANT UPDATE, DELETE ON TABLE public.loose_foreign_keys_deleted_records TO " + role,
		"GRANT USAGE ON SEQUENCE sexton.river_job_id_seq TO " + role,
		"GRANT EXECUTE ON FUNCTION sexton.enqueue(kind text, args jsonb, run_at timestamp with time zone) TO " + role,
	}, fixes)
}

func TestRowLevelSecurityOnTombstones(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	role := p.as()
	for _, f := range p.findings("privileges") {
		p.Exec(f.Fix)
	}
	p.Exec("ALTER TABLE loose_foreign_keys_deleted_records ENABLE ROW LEVEL SECURITY")
	f := p.one("privileges")
	require.Equal(t, "public.loose_foreign_keys_deleted_records", f.Object)
	require.Equal(t, "ALTER ROLE "+role+" BYPASSRLS", f.Fix)
	p.Exec(f.Fix)
	require.Empty(t, p.findings("privileges"))
}

func TestPartitionsThatTheWorkerCannotTrack(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	owner := p.CreateRole()
	p.Exec(`CREATE TABLE "Builds" (id bigint PRIMARY KEY) PARTITION BY RANGE (id); ALTER TABLE "Builds" OWNER TO ` + owner)
	parents := []triggers.Parent{{Schema: "public", Table: "Builds", KeyColumns: []string{"id"}}, {Schema: "public", Table: "parents", KeyColumns: []string{"id"}}}
	conn, err := pgx.Connect(t.Context(), p.URL)
	require.NoError(t, err)
	_, err = triggers.Install(t.Context(), conn, triggers.Config{JobsSchema: "sexton", TrackedSchema: "public"}, parents)
	require.NoError(t, err)
	p.target.Parents = append(p.target.Parents, doctor.Parent{Schema: "public", Table: "Builds", Recorded: `public."Builds"`})
	require.Empty(t, p.findings("partitions"))

	role := p.as()
	const otherwise = ", or `sexton triggers install --event-trigger`, or run `sexton triggers install` as the owner after each new partition"
	f := p.one("partitions")
	require.Equal(t, problem.Warning, f.Severity)
	require.Equal(t, `public."Builds"`, f.Object)
	require.Equal(t, "GRANT "+owner+" TO "+role+otherwise, f.Fix)
	for _, wanted := range []bool{true, false} {
		_, err = triggers.Install(t.Context(), conn, triggers.Config{JobsSchema: "sexton", TrackedSchema: "public", EventTrigger: &wanted}, parents)
		require.NoError(t, err)
		require.Equal(t, wanted, len(p.findings("partitions")) == 0)
	}
	require.NoError(t, conn.Close(t.Context()))
	p.Exec("GRANT " + owner + " TO " + role)
	require.Equal(t, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO "+role+otherwise, p.one("partitions").Fix)
	p.Exec("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO " + role)
	require.Empty(t, p.findings("partitions"))
}
