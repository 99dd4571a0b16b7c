package check_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

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
	next, err := time.Parse(time.RFC3339, fmt.Sprint(idle["adjourned_group_deletion"]["next_run"]))
	require.NoError(t, err)
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
			wanted, err := time.Parse(time.RFC3339, at)
			require.NoError(t, err)
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
