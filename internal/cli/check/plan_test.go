package check_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

func TestPlanShowsWorkAndMissingIndexes(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec(`DROP INDEX issues_project_id_idx;
		CREATE TABLE "Notes" (id bigint PRIMARY KEY, "issueId" bigint REFERENCES issues ON DELETE CASCADE);
		CREATE TABLE labels_of (id bigint PRIMARY KEY, project_id bigint, issue_id bigint);
		INSERT INTO labels_of SELECT id, id % 10 + 1, id FROM generate_series(1, 50) AS id;`)
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions+`labels_of:
  - {table: projects, column: project_id, on_delete: async_nullify}
  - {table: issues, column: issue_id, on_delete: async_delete}
`)
	s.Exec("DELETE FROM projects WHERE id <= 3")
	s.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + interval '1 hour' WHERE primary_key_value = 3")
	before := s.Snapshot()

	r := s.Run("plan")
	require.Zero(t, r.Code, r.Stderr)
	require.Empty(t, r.Stderr, "indexes are said once")
	require.Equal(t, before, s.Snapshot())
	require.Regexp(t, `(?m)^issues +project_id +projects +async_delete +2 +1 +20 +Seq Scan on issues +labels_of.issue_id$`, r.Stdout)
	require.Regexp(t, `(?m)^labels_of +issue_id +issues +async_delete +0 +0 +0 +Seq Scan on labels_of +-$`, r.Stdout)
	require.Regexp(t, `(?m)^labels_of +project_id +projects +async_nullify +2 +1 +10 +Seq Scan on labels_of +-$`, r.Stdout)
	_, below, _ := strings.Cut(r.Stdout, "\n\n")
	require.Equal(t, `main: 3 definitions, 2 tombstones due and 1 put off, 20 rows to delete and 10 to change, 4 indexes missing

-- issues: no index begins with project_id, so every statement reads all of issues
CREATE INDEX CONCURRENTLY IF NOT EXISTS issues_project_id_idx ON public.issues (project_id);

-- Notes: issues → Notes (issueId) ON DELETE CASCADE: no index begins with issueId, so every deleted row of issues reads all of Notes
CREATE INDEX CONCURRENTLY IF NOT EXISTS "Notes_issueId_idx" ON public."Notes" ("issueId");

-- labels_of: no index begins with issue_id, so every statement reads all of labels_of
CREATE INDEX CONCURRENTLY IF NOT EXISTS labels_of_issue_id_idx ON public.labels_of (issue_id);

-- labels_of: no index begins with project_id, so every statement reads all of labels_of
CREATE INDEX CONCURRENTLY IF NOT EXISTS labels_of_project_id_idx ON public.labels_of (project_id);
`, below)

	for line := range strings.Lines(below) {
		if strings.HasPrefix(line, "CREATE ") {
			s.Exec(line)
		}
	}
	require.Contains(t, s.OK("plan"), "no index missing\n")
}

// Installation, plan and doctor name the same indexes, those of foreign keys below a child included.
func TestMissingIndexesAreTheSameEverywhere(t *testing.T) {
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
		"CREATE INDEX CONCURRENTLY IF NOT EXISTS issues_project_id_idx ON public.issues (project_id);", "CREATE INDEX CONCURRENTLY IF NOT EXISTS notes_issue_id_idx ON public.notes (issue_id);",
		"CREATE INDEX CONCURRENTLY IF NOT EXISTS marks_note_id_idx ON public.marks (note_id);", "CREATE INDEX CONCURRENTLY IF NOT EXISTS parts_1_issue_id_idx ON public.parts_1 (issue_id);",
	}, planned)
	warned := s.Run("triggers", "install").Stderr
	require.Equal(t, len(planned), strings.Count(warned, "\n"))
	report, _ := s.Examined(5)
	_, found := s.Diagnosis(report, "indexes")
	require.Len(t, found, len(planned))
	for i, create := range planned {
		require.Contains(t, warned, "("+create+")\n")
		require.Contains(t, found[i], " | "+create)
		s.Exec(create)
	}
	require.Empty(t, s.Run("triggers", "install").Stderr)
	report, _ = s.Examined(0)
	_, found = s.Diagnosis(report, "indexes")
	require.Empty(t, found)
}

// An index that begins with another column is no answer to a missing one, although Postgres skips through it since 18 where that column has few
// values: the plan shows that it does, and advises the index all the same, as the skips grow with the values.
func TestPlanBesideAnIndexThatBeginsWithAnotherColumn(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec(`DROP INDEX issues_project_id_idx; ALTER TABLE issues ADD kind int NOT NULL DEFAULT 1; CREATE INDEX by_kind ON issues (kind, project_id);
		INSERT INTO issues (id, project_id, title) SELECT id, 1, 'x' FROM generate_series(1000, 60000) AS id; UPDATE issues SET project_id = id`)
	s.Exec("VACUUM ANALYZE issues")
	planned := s.OK("plan")
	require.Contains(t, planned, "-- issues: no index begins with project_id")
	if pgtest.Version(t) >= 18 {
		require.Regexp(t, `(?m)^issues .* Index Scan using by_kind `, planned)
		require.Contains(t, planned, "issues.project_id: every statement goes through all values of the first column of index by_kind")
	}
}

func TestPlanShowsCapsAndFindings(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec(`INSERT INTO loose_foreign_keys_deleted_records (primary_key_value, fully_qualified_table_name)
		SELECT id, 'public.projects' FROM generate_series(1, 10001) AS id`)
	s.Exec("DROP INDEX issues_project_id_idx; INSERT INTO issues (id, title) SELECT id, repeat('x', 1000) FROM generate_series(1001, 1100) AS id")
	shown := s.OK("plan")
	require.Regexp(t, `(?m)^issues +project_id +projects +async_delete +10,000\+ +0 +100\+ +Seq Scan on issues +-$`, shown)
	require.Contains(t, shown, "main: 1 definition, at least 10,000 tombstones due and 0 put off, at least 100 rows to delete and 0 to change, 1 index missing\n")
	require.Regexp(t, `(?m)^issues\.project_id: every statement reads all \d+ pages of issues$`, shown)
}

func TestPlanRefusesWrongDefinitions(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions+"  - {table: project, column: project_id, on_delete: async_delete}\n")
	s.Refused(t, 2, [][]string{{"plan"}, {"plan", "--json"}}, "DIR/loose_foreign_keys.yml:5:13: issues[1].table: parent table public.project does not exist")
	s.Write("loose_foreign_keys.yml", "issues:\n  - {tabel: projects, column: project_id, on_delete: async_delete}\n")
	s.Refused(t, 2, [][]string{{"plan"}}, "unknown key (did you mean table?)", "issues[0].table: is missing")
}

// plannedJobs are the jobs of the plan, by their kind.
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

func TestPlanShowsWhatOtherJobsWouldDo(t *testing.T) {
	t.Parallel()
	s := clitest.Roles(t)
	s.Configure(s.URL, strings.NewReplacer("ghost_users: {enabled: true}", "ghost_users: {enabled: true, limit: 1}").Replace(clitest.EveryComponent))
	idle := plannedJobs(s.Site)
	require.Len(t, idle, 7, "every kind but the loose foreign keys")
	for kind, job := range idle {
		require.Subset(t, job, map[string]any{"due": 0.0, "due_capped": false, "next_due_at": nil, "waiting_for": nil}, kind)
		require.NotContains(t, job, "error", kind)
	}
	next := pgtest.Must(time.Parse(time.RFC3339, fmt.Sprint(idle["adjourned_group_deletion"]["next_run"])))(t)
	require.Equal(t, "02:00", next.Format("15:04"))
	require.Nil(t, idle["group_destroy"]["next_run"], "another job inserts these")

	s.Exec(`
		INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO users (id, username, email, name, user_type) SELECT id, 'p' || id, id || '@x.com', '', 15 FROM generate_series(11, 13) AS id;
		INSERT INTO import_placeholder_user_details (placeholder_user_id, organization_id, deletion_attempts, last_deletion_attempt_at)
			VALUES (11, 1, 0, NULL), (12, 1, 1, now() - interval '9 days'), (13, 1, 1, '2100-01-01');
		INSERT INTO users_ghost_user_migrations (user_id, consume_after) VALUES (1, now()), (2, now());
		UPDATE groups SET marked_for_deletion_on = '2026-01-01';
		INSERT INTO group_deletion_schedules (group_id, user_id, marked_for_deletion_on) VALUES (1, 2, '2026-01-01');
		INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (7, 1, 'title', 'branch', 'main');
		INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count) SELECT id, 7, 1, 1 FROM generate_series(1, 3) AS id;
		INSERT INTO sexton.external_diff_removals (diff_id, key, not_before) VALUES (8, 'a', now()), (9, 'b', '2100-01-02');
		INSERT INTO groups (id, name, path) VALUES (99, 'other', 'other');
		SELECT sexton.enqueue('migrate_external_diff', '{"diff_id": 1}'), sexton.enqueue('group_destroy', '{"group_id": 99, "user_id": 2}', '2100-01-03')`)
	s.OK("pause", "users_migrate_records_to_ghost_user_in_batches", "--reason", "backup")
	before := s.Snapshot()
	jobs := plannedJobs(s.Site)
	for kind, want := range map[string]map[string]any{
		"users_migrate_records_to_ghost_user_in_batches": {"due": 2.0, "per_run": 1.0, "unit": "user"},
		"import_placeholder_user_cleanup":                {"due": 2.0, "next_due_at": "2100-01-03T00:00:00Z", "unit": "placeholder user"},
		"import_delete_placeholder_user":                 {"due": 0.0, "unit": "job"},
		"adjourned_group_deletion":                       {"due": 1.0, "unit": "group"},
		"group_destroy":                                  {"due": 0.0, "next_due_at": "2100-01-03T00:00:00Z"},
		"schedule_migrate_external_diffs":                {"due": 3.0, "removals_due": 1.0, "next_due_at": "2100-01-02T00:00:00Z"},
		"migrate_external_diff":                          {"due": 1.0, "unit": "job"},
	} {
		at, timed := want["next_due_at"].(string)
		delete(want, "next_due_at")
		require.Subset(t, jobs[kind], want, kind)
		if timed {
			wanted := pgtest.Must(time.Parse(time.RFC3339, at))(t)
			got, err := time.Parse(time.RFC3339, fmt.Sprint(jobs[kind]["next_due_at"]))
			require.NoError(t, err, kind)
			require.WithinDuration(t, wanted, got, 10*time.Minute, kind)
		}
	}
	require.Contains(t, jobs["users_migrate_records_to_ghost_user_in_batches"]["waiting_for"], "backup")
	require.Contains(t, jobs["adjourned_group_deletion"]["waiting_for"], "a worker: none is running")
	shown := s.OK("plan", "--database-url", s.AsRole(s.Worker))
	require.Regexp(t, `(?m)^users_migrate_records_to_ghost_user_in_batches +2 users \(1 in a run\) +\S+ +- +paused by .*: backup$`, shown)
	require.Regexp(t, `(?m)^schedule_migrate_external_diffs +3 diffs, 1 object to remove +\S+ +2100-01-0\S+ +`, shown)
	require.Equal(t, before, s.Snapshot(), "nothing is changed")

	s.OK("resume", "users_migrate_records_to_ghost_user_in_batches")
	s.Exec("INSERT INTO sexton.external_diff_cursors (rule, after_id) VALUES ('always', 2)")
	require.Subset(t, plannedJobs(s.Site)["schedule_migrate_external_diffs"], map[string]any{"due": 1.0}, "of this round")
	s.Exec("UPDATE sexton.external_diff_cursors SET round_began_at = now() - interval '1 hour'")
	s.Exec(`INSERT INTO sexton.river_job (kind, queue, args, max_attempts) SELECT 'migrate_external_diff', 'migrate_external_diff', '{}', 3 FROM generate_series(1, 10001)`)
	jobs = plannedJobs(s.Site)
	require.Subset(t, jobs["schedule_migrate_external_diffs"], map[string]any{"due": 3.0}, "of the next one, which begins")
	require.Subset(t, jobs["migrate_external_diff"], map[string]any{"due": 10_000.0, "due_capped": true})
}

// What one job keeps to itself hides none of the others.
func TestPlanGoesOnWithoutOneJob(t *testing.T) {
	t.Parallel()
	s := clitest.Roles(t)
	s.Exec(`CREATE OR REPLACE FUNCTION sexton.group_deletion_cutoff() RETURNS date LANGUAGE plpgsql STABLE AS
		$$ BEGIN IF current_setting('transaction_read_only') = 'on' THEN RAISE 'not now'; END IF; RETURN NULL; END $$`)
	jobs := plannedJobs(s.Site)
	require.Contains(t, jobs["adjourned_group_deletion"]["error"], "not now")
	require.NotContains(t, jobs["migrate_external_diff"], "error")
}

// Where deletions are kept, plan and doctor name what would not come back.
func TestPlanNamesWhatUndoDoesNotCover(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("ALTER TABLE issues ADD secret text, ADD UNIQUE (id, project_id);" +
		"CREATE TABLE pins (id bigint PRIMARY KEY, issue_id bigint DEFAULT 1, project_id bigint," +
		"CONSTRAINT pins_issue_id_fkey FOREIGN KEY (issue_id, project_id) REFERENCES issues (id, project_id) ON DELETE SET DEFAULT);" +
		"CREATE TABLE keyless (issue_id bigint REFERENCES issues ON DELETE SET NULL);" +
		"CREATE TABLE old_projects () INHERITS (projects)")
	require.NotContains(t, s.OK("plan"), "undo")
	require.Empty(t, s.Run("config", "check").Stderr)
	s.Exec("CREATE RULE ruled AS ON DELETE TO issues WHERE old.id = 99 DO INSTEAD NOTHING; CREATE RULE ruled AS ON DELETE TO projects WHERE old.id = 99 " +
		"DO INSTEAD NOTHING")
	s.Environ = append(s.Environ, "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__KEEP=72h", "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__MAX_SIZE=1000",
		"SEXTON_LOOSE_FOREIGN_KEYS__UNDO__EXCLUDE=issues.secret")
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	planned := s.OK("plan")
	for _, want := range []string{
		"table public.keyless: sexton undo does not bring back what foreign key keyless_issue_id_fkey deletes or changes with rows of public.issues: ",
		"table public.issues: sexton undo does not bring back its rows: with the rules ruled they cannot be kept",
		"table public.issues: rows come back with the default of secret, which loose_foreign_keys.undo.exclude names",
		"table public.projects: sexton undo brings back nothing that is deleted from it: rows of tables that inherit from it go along, and cannot be told " +
			"from its own: public.old_projects",
		"table public.projects: its 0.0 MB do not fit into loose_foreign_keys.undo.max_size, 0.0 MB",
	} {
		require.Contains(t, planned, want)
		require.Contains(t, s.Run("doctor").Stdout, strings.SplitN(want, ": ", 2)[1])
	}
	require.NotContains(t, planned, "public.pins: sexton undo")
	checked := s.Run("config", "check")
	require.Zero(t, checked.Code)
	require.Contains(t, checked.Stderr, "database main, table public.keyless: sexton undo does not bring back what foreign key keyless_issue_id_fkey ")
	require.Contains(t, checked.Stderr, "table public.issues: sexton undo does not bring back its rows")
	require.NotContains(t, checked.Stderr, "table public.projects: sexton undo does not bring back its rows")
	require.NotContains(t, checked.Stderr, "secret", "that is as configured")
	checked = s.Run("config", "check", "--database-url", "postgres://127.0.0.1:1/none")
	require.Zero(t, checked.Code)
	require.Contains(t, checked.Stderr, "what undo does not cover was not looked for: ")
	losses := s.JSON(0, "plan").([]any)[0].(map[string]any)["undo_uncovered"].([]any)
	require.Equal(t, "table public.keyless", losses[0].(map[string]any)["object"])
	require.Equal(t, "table public.issues", losses[1].(map[string]any)["object"])
	s.Environ = append(s.Environ, "SEXTON_LOOSE_FOREIGN_KEYS__UNDO__TABLES=public.projcts")
	s.Says(2, `no definition has the parent "public.projcts"`, "config", "check")
}
