package check_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

// `triggers install`, plan and doctor report the same missing indexes, including indexes
// on tables below the children.
func TestMissingIndexesAreConsistent(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec(`DROP INDEX issues_project_id_idx;
		CREATE TABLE notes (id bigint PRIMARY KEY, issue_id bigint REFERENCES issues ON DELETE CASCADE);
		CREATE TABLE marks (id bigint PRIMARY KEY, note_id bigint REFERENCES notes ON DELETE SET NULL);
		CREATE TABLE parts (id bigint, issue_id bigint REFERENCES issues ON DELETE CASCADE) PARTITION BY LIST (id);
		CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1); CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
		CREATE INDEX ON parts_2 (issue_id);`)
	var planned []string
	for line := range strings.Lines(s.OK("plan")) {
		if strings.HasPrefix(line, "CREATE ") {
			planned = append(planned, strings.TrimSpace(line))
		}
	}
	require.ElementsMatch(t, []string{
		`CREATE INDEX CONCURRENTLY ON "public"."issues" ("project_id");`,
		`CREATE INDEX CONCURRENTLY ON "public"."notes" ("issue_id");`,
		`CREATE INDEX CONCURRENTLY ON "public"."marks" ("note_id");`,
		`CREATE INDEX CONCURRENTLY ON "public"."parts_1" ("issue_id");`,
	}, planned)
	warned := s.Run("triggers", "install").Stderr
	require.Equal(t, len(planned), strings.Count(warned, "\n"))
	report, _ := s.RunDoctor(5)
	_, found := s.CheckResult(report, "indexes")
	require.Len(t, found, len(planned))
	for i, create := range planned {
		require.Contains(t, warned, "("+create+")\n")
		require.Contains(t, found[i], " | "+create)
		s.Exec(create)
	}
	require.Empty(t, s.Run("triggers", "install").Stderr)
	report, _ = s.RunDoctor(0)
	_, found = s.CheckResult(report, "indexes")
	require.Empty(t, found)
}

// plannedJobs returns the planned jobs in the output of `sexton plan --json`, by kind.
func plannedJobs(s *clitest.Site) map[string]map[string]any {
	s.Tb.Helper()
	jobs := map[string]map[string]any{}
	for _, database := range s.JSON(0, "plan").([]any) {
		for _, job := range database.(map[string]any)["jobs"].([]any) {
			entry := job.(map[string]any)
			jobs[fmt.Sprint(entry["kind"])] = entry
		}
	}
	return jobs
}

// If the plan of one job fails, the plans of the other jobs are printed.
func TestPlanWithAFailingJob(t *testing.T) {
	t.Parallel()
	s := clitest.NewRoleSite(t)
	s.Exec(`CREATE OR REPLACE FUNCTION sexton.group_deletion_cutoff() RETURNS date LANGUAGE plpgsql STABLE AS
		$$ BEGIN IF current_setting('transaction_read_only') = 'on' THEN RAISE 'not now'; END IF; RETURN NULL; END $$`)
	jobs := plannedJobs(s.Site)
	require.Contains(t, jobs["adjourned_group_deletion"]["error"], "not now")
	require.NotContains(t, jobs["migrate_external_diff"], "error")
}

// If undo is enabled, plan and doctor report what undo would not restore.
func TestPlanReportsWhatUndoCannotRestore(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("ALTER TABLE issues ADD secret text, ADD UNIQUE (id, project_id);" +
		"CREATE TABLE pins (id bigint PRIMARY KEY, issue_id bigint DEFAULT 1, project_id bigint," +
		"CONSTRAINT pins_issue_id_fkey FOREIGN KEY (issue_id, project_id) REFERENCES issues (id, project_id) ON DELETE SET DEFAULT);" +
		"CREATE TABLE keyless (issue_id bigint REFERENCES issues ON DELETE SET NULL);" +
		"CREATE TABLE old_projects () INHERITS (projects)")
	require.NotContains(t, s.OK("plan"), "undo")
	s.Exec("CREATE RULE ruled AS ON DELETE TO issues WHERE old.id = 99 DO INSTEAD NOTHING; CREATE RULE ruled AS ON DELETE TO projects WHERE old.id = 99 " +
		"DO INSTEAD NOTHING")
	s.Environ = append(s.Environ, "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__KEEP=72h",
		"SEXTON_LOOSE_FOREIGN_KEYS__UNDO__MAX_SIZE=1000",
		"SEXTON_LOOSE_FOREIGN_KEYS__UNDO__EXCLUDE_COLUMNS=issues.secret")
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	planned := s.OK("plan")
	for _, want := range []string{
		"table public.keyless: sexton undo does not restore the rows that foreign key keyless_issue_id_fkey deletes or changes with rows of public.issues: ",
		"table public.issues: its rows are not cleaned up: undo cannot keep rows of a table with rules (ruled)",
		"table public.issues: rows are restored with the default of secret, which loose_foreign_keys.undo.exclude_columns names",
		"table public.projects: sexton undo restores none of its rows: rows of tables that inherit from it are deleted too, and cannot be distinguished " +
			"from its own: public.old_projects",
		"table public.projects: its 0.0 MB do not fit into loose_foreign_keys.undo.max_size, 0.0 MB",
	} {
		require.Contains(t, planned, want)
		require.Contains(t, s.Run("doctor").Stdout, strings.SplitN(want, ": ", 2)[1])
	}
	require.NotContains(t, planned, "public.pins: sexton undo")
	losses := s.JSON(0, "plan").([]any)[0].(map[string]any)["undo_uncovered"].([]any)
	require.Equal(t, "table public.keyless", losses[0].(map[string]any)["object"])
	require.Equal(t, "table public.issues", losses[1].(map[string]any)["object"])
	s.Environ = append(s.Environ, "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__TABLES=public.projcts")
	s.RequireError(2, `no definition has the parent "public.projcts"`, "config", "check")
}
