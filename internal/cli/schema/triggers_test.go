package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

func TestTriggersInstallStatusUninstall(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	s.OK("migrate", "up")
	before := s.Snapshot()
	r := s.Run("triggers", "status")
	require.Equal(t, 5, r.Code)
	require.Empty(t, r.Stderr)
	require.Regexp(t,
		`(?m)^main +missing +public\.projects +sexton_track +deletions are not recorded +run .sexton triggers install.$`,
		r.Stdout)
	require.Equal(t, before, s.Snapshot())

	require.Equal(t, `main: created sexton_track on public.projects
main: created sexton_truncate on public.projects
main: created sexton_wake on public.loose_foreign_keys_deleted_records
main: 3 triggers changed, 0 unchanged
main: parents that were deleted earlier are not recorded for issues: sexton audit finds their children, sexton audit --repair cleans them up
`, s.OK("triggers", "install"))
	require.Equal(t, "main: all triggers match the definitions\n", s.OK("triggers", "status"))
	first := s.Snapshot()
	require.Equal(t, "main: 0 triggers changed, 3 unchanged\n", s.OK("triggers", "install"))
	require.Equal(t, first, s.Snapshot(), "a second install changes nothing")

	s.Exec("ALTER TABLE projects DISABLE TRIGGER sexton_track")
	r = s.Run("triggers", "status")
	require.Equal(t, 5, r.Code)
	require.Regexp(t,
		`^main +disabled +public\.projects +sexton_track +the trigger is disabled +run .sexton triggers install.\n$`,
		r.Stdout)
	require.Contains(t, s.OK("triggers", "install"), "main: 1 trigger changed, 2 unchanged\n")

	require.Equal(t, "main: 3 triggers removed\n", s.OK("triggers", "uninstall"))
	require.Equal(t, "main: 0 triggers removed\n", s.OK("triggers", "uninstall"))
}

func TestSurplusTriggers(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Write("loose_foreign_keys.yml", "issues:\n  - {table: builds, column: author_id, on_delete: async_delete}\n")
	r := s.Run("triggers", "status")
	require.Equal(t, 5, r.Code)
	require.Regexp(t, `(?m)^main +surplus +public\.projects +sexton_track +no definition names this table as parent`,
		r.Stdout)
	require.Contains(t, s.OK("triggers", "install"),
		"main: sexton_track on public.projects is surplus: restore the definition, or run: DROP TRIGGER \"sexton_track\" ON public.projects\n")
}

func TestTriggersWarnOfAMissingIndex(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("DROP INDEX issues_project_id_idx")
	r := s.Run("triggers", "install")
	require.Zero(t, r.Code)
	require.Contains(t, r.Stderr, "sexton: warning: "+s.Path("loose_foreign_keys.yml")+
		":3:13: issues[0].column: no index begins with project_id, so every statement reads all of issues (CREATE INDEX CONCURRENTLY ON \"public\".\"issues\" (\"project_id\");)")
	require.Zero(t, s.Run("triggers", "status").Code)
}

// If the definition files change, triggers status and doctor report it, and the job is
// skipped until `triggers install` installs the new definitions. A changed comment is not
// reported.
func TestTriggersStatusAfterChangedDefinitions(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Write("loose_foreign_keys.yml", "# a comment\n"+clitest.GoodDefinitions)
	s.OK("triggers", "status")
	s.Exec("CREATE TABLE notes (id bigint PRIMARY KEY, project_id bigint); CREATE INDEX ON notes (project_id)")
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions+
		"notes: [{table: projects, column: project_id, on_delete: async_delete}]\n")
	r := s.Run("triggers", "status")
	require.Equal(t, 5, r.Code)
	require.Contains(t, r.Stdout, "definitions of loose_foreign_keys_cleanup")
	report, _ := s.RunDoctor(5)
	require.Contains(t, clitest.ChecksWithProblems(report), "generations")
	s.Exec("DELETE FROM projects WHERE id = 1")
	require.Contains(t, s.OK("job", "run", clitest.Kind), "the definitions installed in database main differ from the loaded ones")
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, s.Database,
		"SELECT count(*) FROM loose_foreign_keys_deleted_records"))

	installed := s.OK("triggers", "install")
	require.Contains(t, installed, "main: parents that were deleted earlier are not recorded for notes: sexton audit")
	require.Regexp(t, `(?m)^main: definitions of loose_foreign_keys_cleanup: installed 1:[0-9a-f]+, was 1:[0-9a-f]+$`,
		installed)
	s.OK("triggers", "status")
	s.OK("job", "run", clitest.Kind)
	require.Zero(t, pgtest.Scalar[int64](t, s.Database, "SELECT count(*) FROM loose_foreign_keys_deleted_records"))
	s.Exec(`INSERT INTO sexton.clients (client_id, host, pid, digests) VALUES ('old', 'h', 1, '{"loose_foreign_keys/cleanup_worker:main": "1:old"}')`)
	status := s.JSON(0, "status").(map[string]any)
	require.Contains(t, status["jobs"].([]any)[0].(map[string]any)["waiting_for"], "1 of 1 worker loaded other definitions (old)")
	report, _ = s.RunDoctor(5)
	require.Contains(t, clitest.ChecksWithProblems(report), "generations")
}

func TestMain(m *testing.M) { clitest.Main(m) }
