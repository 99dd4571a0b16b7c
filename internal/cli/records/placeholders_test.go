package records_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

const (
	placeholderKind = "import_placeholder_user_cleanup"
	deletionKind    = "import_delete_placeholder_user"
)

// placeholderSite returns the reference application with the jobs for placeholder users.
// User 11 has no contributions, 12 has an issue and a note, and 13 belongs to an existing
// group. User 14 was given up after 15 attempts, because an issue refers to it.
func placeholderSite(t *testing.T) *clitest.Site {
	s := clitest.Prepared(t, exampleapp.Schema()+`
		INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO groups (id, name, path) VALUES (1, 'kept', 'kept');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
		INSERT INTO users (id, username, email, name, user_type)
			SELECT id, 'p' || id, id || '@noreply.example.com', 'Placeholder ' || id, 15 FROM generate_series(11, 14) AS id;
		INSERT INTO issues (id, project_id, title, author_id, updated_by_id) VALUES (1, 1, 'imported', 12, 14);
		INSERT INTO notes (id, project_id, noteable_type, noteable_id, author_id, note) VALUES (5, 1, 'Issue', 1, 12, 'n');
		INSERT INTO import_placeholder_user_details (id, placeholder_user_id, namespace_id, organization_id, deletion_attempts, last_deletion_attempt_at)
			SELECT id, id, CASE id WHEN 13 THEN 1 END, 1, CASE id WHEN 14 THEN 15 ELSE 0 END, CASE id WHEN 14 THEN now() - interval '3 days' END
			FROM generate_series(11, 14) AS id;`,
		"loose_foreign_keys: {enabled: false}\nghost_users: {enabled: true}\nplaceholder_users: {enabled: true}\n")
	s.Exec("UPDATE import_placeholder_user_details SET last_error = 'still referenced by issues.updated_by_id (id 1)', blocked_by = '{issues.updated_by_id}' WHERE id = 14")
	return s
}

const keptReason = "still referenced by notes.author_id (id 5), issues.author_id (id 1)"

func TestPlaceholderJobs(t *testing.T) {
	t.Parallel()
	s := placeholderSite(t)
	report := s.JSON(0, "job", "run", placeholderKind).(map[string]any)
	require.Equal(t, "done", report["outcome"])
	require.EqualValues(t, 2, report["stats"].(map[string]any)["scheduled"])
	require.EqualValues(t, 0,
		s.JSON(0, "job", "run", placeholderKind).(map[string]any)["stats"].(map[string]any)["scheduled"],
		"the second run schedules nothing")

	report = s.JSON(0, "job", "run", deletionKind, "--args", `{"user_id": 12}`).(map[string]any)
	require.Equal(t, "done", report["outcome"])
	require.Equal(t, keptReason, report["reason"])
	require.Equal(t, []any{
		map[string]any{"column": "notes.author_id", "sample": "id 5"},
		map[string]any{"column": "issues.author_id", "sample": "id 1"},
	}, report["stats"].(map[string]any)["blockers"])
	require.Contains(t, s.OK("job", "run", deletionKind, "--args", `{"user_id": 12}`), keptReason, "the text also has the reason")
	report = s.JSON(0, "job", "run", deletionKind, "--args", `{"user_id": 11}`).(map[string]any)
	require.Equal(t, "queued", report["stats"].(map[string]any)["outcome"])
	s.OK("job", "run", ghostKind)
	require.Equal(t, [][]string{{"12"}, {"13"}, {"14"}},
		s.Rows("SELECT placeholder_user_id FROM import_placeholder_user_details ORDER BY id"))

	for _, args := range [][]string{{}, {"--args", `{}`}, {"--args", `{"user_id": "x"}`}, {"--args", `{"user": 1}`}} {
		require.Equal(t, 2, s.Run(append([]string{"job", "run", deletionKind}, args...)...).Code, args)
	}
}

func TestStatusShowsWhatKeepsPlaceholders(t *testing.T) {
	t.Parallel()
	s := placeholderSite(t)
	s.OK("job", "run", placeholderKind)
	s.OK("job", "run", deletionKind, "--args", `{"user_id": 12}`)
	s.Exec("UPDATE sexton.river_job SET state = 'completed', finalized_at = now()")
	jobs := s.JSON(0, "status").(map[string]any)["jobs"].([]any)
	require.Regexp(t, "^2 placeholder users deferred, the first until ", jobs[1].(map[string]any)["waiting_for"])
	require.Nil(t, jobs[2].(map[string]any)["waiting_for"], "the job of single deletions waits for nothing")

	shown := s.OK("status")
	require.Regexp(t, `import_placeholder_user_details +main +2 +\S+ +2 +0\n`, shown)
	require.Contains(t, shown, "1 row of import_placeholder_user_details given up; see sexton failures list")
	require.Regexp(t,
		`PLACEHOLDER +STATE +ATTEMPTS +LAST ATTEMPT +NEXT ATTEMPT +REASON\n14 +given_up +15 +3d0h ago +- +still referenced by issues.updated_by_id \(id 1\)\n12 +deferred +1 `, shown)
	require.Regexp(t, deletionKind+` +main +- `, s.OK("job", "list"))
}

// doctor reports configured references that have no index or the wrong type.
func TestDoctorReportsPlaceholderReferences(t *testing.T) {
	t.Parallel()
	s := placeholderSite(t)
	s.Exec(`CREATE TABLE drawings (id bigint PRIMARY KEY, artist_id bigint, signature numeric)`)
	s.Configure(s.URL,
		"loose_foreign_keys: {enabled: false}\nghost_users: {enabled: true}\nplaceholder_users:\n  enabled: true\n"+
			"  references:\n    - {table: drawings, columns: [artist_id, signature]}\n")
	var report struct {
		Findings []struct{ Check, Severity, Message string }
	}
	require.NoError(t, json.Unmarshal([]byte(s.Run("doctor", "--json").Stdout), &report))
	found := map[string]string{}
	for _, f := range report.Findings {
		if f.Check == "placeholder_users" {
			found[f.Message] = f.Severity
		}
	}
	place := s.Path("sexton.yaml") + ":8:"
	require.Equal(t, map[string]string{
		place + "35: no index of drawings begins with artist_id, so every batch reads the whole table":                                        "warning",
		place + "46: drawings.signature is of type numeric, but users.id is of type int8: a foreign key of type numeric cannot refer to int8": "error",
	}, found)
}

func TestDisabledPlaceholders(t *testing.T) {
	t.Parallel()
	s := clitest.NewSite(t, pgtest.New(t))
	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\nghost_users: {enabled: true}\n")
	s.RequireError(2, "import_placeholder_user_cleanup is not enabled; set placeholder_users.enabled: true", "job", "run",
		placeholderKind)
}

const adjournedKind = "adjourned_group_deletion"
