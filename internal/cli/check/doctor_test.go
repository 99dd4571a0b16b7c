package check_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/doctor"
	"sexton/internal/pgtest"
)

// requireFindings runs doctor and requires that one check has exactly the given findings.
func requireFindings(s *clitest.Site, code int, check string, want ...string) {
	s.Tb.Helper()
	report, _ := s.RunDoctor(code)
	result, lines := s.CheckResult(report, check)
	require.Equal(s.Tb, doctor.Found, result, report.Checks)
	require.Equal(s.Tb, want, lines)
}

// findings runs doctor and returns the findings of one check.
func findings(s *clitest.Site, code int, check string) []string {
	s.Tb.Helper()
	report, _ := s.RunDoctor(code)
	_, lines := s.CheckResult(report, check)
	return lines
}

func TestDoctorWithoutDatabase(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Configure(s.ChangedURL(func(u *url.URL) { u.Path = "/no_such_database" }), "")
	report, r := s.RunDoctor(4)
	_, lines := s.CheckResult(report, "connection")
	require.Equal(t, []string{"error | databases.main.url | the database cannot be reached: " +
		`database "no_such_database" does not exist | create it, or correct the database's name`}, lines)
	require.Contains(t, r.Stderr, "sexton: "+s.Path("sexton.yaml")+
		":2:15: databases.main.url: database main cannot be reached")
	result, _ := s.CheckResult(report, "workers")
	require.Equal(t, doctor.Skipped, result)

	s.Configure(s.ChangedURL(func(u *url.URL) { u.RawQuery += "&pool_max_conns=none" }), "")
	lines = findings(s, 2, "connection")
	require.Equal(t,
		[]string{"error | databases.main.url | the connection string cannot be parsed | correct its parameters"}, lines)

	s.Configure(s.URL, "loose_foreign_keys: {shedule: \"* * * * *\"}\n")
	s.RequireError(2, "unknown key", "doctor")
}

func TestDoctorOfAWrongListenURL(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Environ = append(s.Environ, "SEXTON_DATABASES__MAIN__LISTEN_URL=postgres://user:hidden@/app?host="+s.Dir)
	report, r := s.RunDoctor(4)
	_, lines := s.CheckResult(report, "connection")
	require.Equal(t, []string{"error | databases.main.listen_url | the database cannot be reached: " +
		"no server answers at DIR port 5432: no such file or directory | start it, or correct host and port"}, lines)
	require.NotContains(t, r.Stdout+r.Stderr, "hidden")
	result, _ := s.CheckResult(report, "listen")
	require.Equal(t, doctor.Skipped, result)

	// If the listen_url leads to another database, the check of LISTEN has a finding.
	s.Environ[len(s.Environ)-1] = "SEXTON_DATABASES__MAIN__LISTEN_URL=" + pgtest.New(t).URL
	lines = findings(s, 5, "listen")
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "error | listen_url | listen_url connects to database ")
}

func TestDoctorOfDefinitions(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("ALTER TABLE issues ALTER COLUMN project_id SET NOT NULL")
	s.Write("loose_foreign_keys.yml", `issues:
  - table: projects
    column: project_id
    on_delete: async_nullify
  - table: gone
    column: author_id
    on_delete: async_delete
`)
	requireFindings(s, 5, "tables",
		"error | issues[0].on_delete | DIR/loose_foreign_keys.yml:4:16: async_nullify, but issues.project_id is NOT NULL | drop the constraint, or use async_delete",
		"error | issues[1].table | DIR/loose_foreign_keys.yml:5:12: parent table public.gone does not exist | create it, correct the name, or remove the definition")

	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions+"    limit: 3\n")
	report, _ := s.RunDoctor(5)
	result, lines := s.CheckResult(report, "definitions")
	require.Equal(t, doctor.Found, result)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "error | issues[0].limit | DIR/loose_foreign_keys.yml:5:")
	result, _ = s.CheckResult(report, "triggers")
	require.Equal(t, doctor.Skipped, result, "with incomplete definitions, triggers would be reported as surplus")
	result, _ = s.CheckResult(report, "tombstones")
	require.Equal(t, doctor.Skipped, result)

	require.NoError(t, os.Remove(filepath.Join(s.Dir, "loose_foreign_keys.yml")))
	lines = findings(s, 5, "definitions")
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "error | DIR/loose_foreign_keys.yml | the definitions file does not exist")
}

func TestDoctorOfTriggers(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("ALTER TABLE projects ENABLE TRIGGER sexton_track; ALTER TABLE projects ENABLE ALWAYS TRIGGER sexton_truncate")
	requireFindings(s, 0, "triggers",
		"info | sexton_track on public.projects | plain: the trigger does not fire under session_replication_role = replica"+
			" | run `sexton triggers install`")
	s.Exec(`ALTER TABLE projects DISABLE TRIGGER sexton_track; DROP TRIGGER sexton_truncate ON projects;
		DROP TRIGGER sexton_wake ON loose_foreign_keys_deleted_records`)
	const fix = " | run `sexton triggers install`"
	requireFindings(s, 5, "triggers",
		"error | sexton_track on public.projects | disabled: the trigger is disabled"+fix,
		"error | sexton_truncate on public.projects | missing: TRUNCATE leaves children without a parent"+fix,
		"warning | sexton_wake on public.loose_foreign_keys_deleted_records | missing: new work waits for the next tick"+fix)

	s.OK("triggers", "install")
	s.Write("loose_foreign_keys.yml", "issues:\n  - {table: builds, column: author_id, on_delete: async_delete}\n")
	lines := findings(s, 5, "triggers")
	require.Contains(t, lines,
		"warning | sexton_track on public.projects | surplus: no definition names this table as parent"+
			` | restore the definition, or run: DROP TRIGGER "sexton_track" ON public.projects`)
}

func TestDoctorOfTombstonesWithoutDefinition(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.\"it''s\"', 1), ('public.projects', 1)")
	lines := findings(s, 5, "tombstones")
	require.Len(t, lines, 1)
	require.Contains(t, lines[0],
		`warning | public."it's" | tombstones of public."it's" wait because no definition names it as a parent`)

	require.Contains(t, s.OK("status"), "a definition for tombstones of public.\"it's\"\n")
	_, statement, _ := strings.Cut(lines[0], "delete them: ")
	s.Exec(statement)
	require.Empty(t, findings(s, 0, "tombstones"))
	require.Len(t, s.Rows("SELECT FROM loose_foreign_keys_deleted_records"), 1,
		"the statement deletes no other tombstone")
}

func TestDoctorOfStalledJobs(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec(`INSERT INTO sexton.river_job (id, args, kind, queue, state, max_attempts, scheduled_at)
		VALUES (7, '{"database": "main"}', $1, $1, 'available', 1, '2026-01-02T03:04:05Z')`, clitest.Kind)
	s.Exec("SELECT setval('sexton.river_job_id_seq', 7)")
	requireFindings(s, 5, "stalled_jobs", "warning | "+clitest.Kind+
		"/main | the job waits for a worker: none has fetched job 7, available since 2026-01-02T03:04:05Z"+
		" | start a worker (sexton run), or read the log of the running one")
	s.Pause()
	report, _ := s.RunDoctor(0)
	result, _ := s.CheckResult(report, "stalled_jobs")
	require.Equal(t, doctor.OK, result, "a paused job is not stalled")
	_, lines := s.CheckResult(report, "pauses")
	require.Equal(t, []string{"info | " + clitest.Kind +
		" | the job is paused since 2026-01-02T03:04:05Z | sexton resume " + clitest.Kind}, lines)
}

func TestDoctorOfFailedTombstones(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec(`INSERT INTO loose_foreign_keys_deleted_records (id, fully_qualified_table_name, primary_key_value, cleanup_attempts, last_error, consume_after)
		OVERRIDING SYSTEM VALUE VALUES (7, 'public.projects', 1, 0, NULL, now()), (8, 'public.projects', 2, 3, 'public.issues: 23514: check x', now() + interval '1 hour')`)
	line := func(id, key string) string {
		return "warning | public.projects, key " + key +
			" | the cleanup of this row has failed, 3 attempts so far: public.issues: 23514: check x" +
			" | remove the cause; Sexton retries it later, or immediately with `sexton failures retry tombstones " + id + " --database main`"
	}
	requireFindings(s, 5, "failed_tombstones", line("8", "2"))
	s.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, cleanup_attempts, last_error, consume_after)
		SELECT 'public.projects', id, 1, 'x', now() + interval '2 hours' FROM generate_series(3, 15) AS id`)
	lines := findings(s, 5, "failed_tombstones")
	require.Len(t, lines, 11)
	require.Equal(t, line("8", "2"), lines[0])
	require.Equal(t,
		"warning | table loose_foreign_keys_deleted_records | 4 more tombstones failed | see `sexton failures list`",
		lines[10])
}

// doctor checks the privileges of the worker's role, also if another role runs doctor.
func TestDoctorChecksTheWorkersRole(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	worker, installer := s.CreateRole(), s.CreateRole()
	s.Exec("GRANT sexton_owner TO " + pgx.Identifier{installer}.Sanitize() +
		"; GRANT ALL ON ALL TABLES IN SCHEMA public TO " + pgx.Identifier{installer}.Sanitize())
	s.Configure(s.AsRole(installer), "")
	report, _ := s.RunDoctor(0)
	require.Equal(t, map[string]doctor.Role{"main": {Name: installer, Source: doctor.OfURL}}, report.Roles)
	_, lines := s.CheckResult(report, "statistics")
	require.Empty(t, lines, "no finding for the role that installs Sexton")

	requireLacks := func(source string, args ...string) {
		r := s.Run(append([]string{"doctor"}, args...)...)
		require.Equal(t, 5, r.Code, r.Stderr)
		require.Regexp(t, "^main: checking the privileges of role "+worker+", "+source+"\n", r.Stdout)
		require.Contains(t, r.Stdout, "\n  fix: GRANT USAGE ON SCHEMA sexton TO "+worker+";\n")
		require.Contains(t, r.Stdout, "\n  fix: GRANT DELETE, SELECT, UPDATE ON public.issues TO "+worker+";\n")
		require.Contains(t, r.Stdout, "\n  fix: GRANT SELECT (id) ON public.projects TO "+worker+";\n")
		require.Contains(t, r.Stdout, "\n  fix: GRANT pg_read_all_stats TO "+worker+";\n")
	}
	requireLacks(doctor.Named, "--role", worker)
	pgtest.Connect(t, s.AsRole(worker)+"&application_name=sexton+%28worker%29")
	requireLacks(doctor.Worker)
	s.OK("grants", "--worker", worker, "--apply", "--database-url", s.URL)
	report, _ = s.RunDoctor(0)
	require.Equal(t, map[string]doctor.Role{"main": {Name: worker, Other: true, Source: doctor.Worker}}, report.Roles)
	for _, check := range []string{"settings", "search_path"} {
		result, _ := s.CheckResult(report, check)
		require.Equal(t, doctor.Skipped, result, check)
	}
	s.Exec("ALTER TABLE issues ENABLE ROW LEVEL SECURITY")
	require.Contains(t, s.Run("doctor").Stdout, "ALTER ROLE "+worker+" BYPASSRLS;\n")
	unknown := s.Run("doctor", "--role", "nobody").Stdout
	require.Contains(t, unknown, `error: main role: role "nobody": the role does not exist`)
	require.NotContains(t, unknown, "checking the privileges")
	require.NotContains(t, unknown, "the check failed")
	require.NotContains(t, s.Run("doctor", "--role", "public").Stdout, "TO public", "a grant to public would give the privileges to all roles")
}
