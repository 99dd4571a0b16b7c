package check_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

func TestPlanOfAnIdleDatabase(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("ANALYZE issues") // Autovacuum may do so at any moment, and the plan is another one then.
	before := s.Snapshot()
	require.Equal(t, []any{map[string]any{
		"database": "main",
		"definitions": []any{map[string]any{
			"child": "issues", "column": "project_id", "parent": "projects", "action": "async_delete", "conditions": []any{},
			"pending": 0.0, "pending_capped": false, "due": 0.0, "deferred": 0.0, "rows": 0.0, "rows_capped": false,
			"plan":     map[string]any{"node": "Index Scan", "index": "issues_project_id_idx", "uses_index": true, "table": "issues", "pages": 1.0},
			"findings": []any{}, "missing_indexes": []any{}, "then": []any{},
		}},
		"totals": map[string]any{
			"definitions": 1.0, "pending": 0.0, "pending_capped": false, "due": 0.0, "deferred": 0.0,
			"delete_rows": 0.0, "update_rows": 0.0, "rows_capped": false, "missing_indexes": 0.0, "findings": 0.0,
		},
	}}, s.JSON(0, "plan"))
	require.Regexp(t, `^CHILD +COLUMN +PARENT +ACTION +DUE +PUT OFF +ROWS +PLAN +THEN
issues +project_id +projects +async_delete +0 +0 +0 +Index Scan using issues_project_id_idx +-

main: 1 definition, 0 tombstones due and 0 put off, 0 rows to delete and 0 to change, no index missing
$`, s.OK("plan"))
	require.Equal(t, before, s.Snapshot())
}

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
CREATE INDEX CONCURRENTLY ON public.issues (project_id);

-- Notes: issues → Notes (issueId) ON DELETE CASCADE: no index begins with issueId, so every deleted row of issues reads all of Notes
CREATE INDEX CONCURRENTLY ON public."Notes" ("issueId");

-- labels_of: no index begins with issue_id, so every statement reads all of labels_of
CREATE INDEX CONCURRENTLY ON public.labels_of (issue_id);

-- labels_of: no index begins with project_id, so every statement reads all of labels_of
CREATE INDEX CONCURRENTLY ON public.labels_of (project_id);
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
		"CREATE INDEX CONCURRENTLY ON public.issues (project_id);", "CREATE INDEX CONCURRENTLY ON public.notes (issue_id);",
		"CREATE INDEX CONCURRENTLY ON public.marks (note_id);", "CREATE INDEX CONCURRENTLY ON public.parts_1 (issue_id);",
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

func TestPlanShowsCapsAndFindings(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec(`INSERT INTO loose_foreign_keys_deleted_records (primary_key_value, fully_qualified_table_name)
		SELECT id, 'public.projects' FROM generate_series(1, 10001) AS id`)
	s.Exec("DROP INDEX issues_project_id_idx; INSERT INTO issues (id, title) SELECT id, repeat('x', 1000) FROM generate_series(1001, 1100) AS id")
	shown := s.OK("plan")
	require.Regexp(t, `(?m)^issues +project_id +projects +async_delete +10000\+ +0 +100\+ +Seq Scan on issues +-$`, shown)
	require.Contains(t, shown, "main: 1 definition, at least 10000 tombstones due and 0 put off, at least 100 rows to delete and 0 to change, 1 index missing\n")
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

func TestPlanShowsOtherWarnings(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Write("loose_foreign_keys.yml", "issues:\n  - {table: builds, column: project_id, on_delete: async_delete}\n")
	r := s.Run("plan")
	require.Zero(t, r.Code)
	require.Regexp(t, `^sexton: warning: \S+: issues\[0\]\.table: id is only a part of the primary key of builds`, r.Stderr)
}

func TestPlanWithoutDefinitions(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\n")
	require.Equal(t, "main: 0 definitions, 0 tombstones due and 0 put off, 0 rows to delete and 0 to change, no index missing\n", s.OK("plan"))
}
