package operator

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/component"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/installation"
	"sexton/internal/web"
	riverjobs "sexton/river_jobs"
)

// failingSite is the reference application with something that has failed in every deletion table but the tombstones.
func failingSite(t *testing.T) (*dbtest.DB, *installation.Connections) {
	t.Helper()
	db := dbtest.Reference(t)
	c := &config.Config{}
	c.GhostUsers.Enabled, c.AdjournedGroups.Enabled, c.ExternalDiffs.Enabled = true, true, true
	c.PlaceholderUsers.Enabled, c.PlaceholderUsers.MaxAttempts, c.PlaceholderUsers.RetryPeriod = true, 15, 48*time.Hour
	c.GhostUsers.Schedule, c.PlaceholderUsers.Schedule, c.AdjournedGroups.Schedule, c.ExternalDiffs.Schedule = "* * * * *", "0 0 * * *", "0 2 * * *", "15 * * * *"
	c.ExternalDiffs.When = "always"
	c.Jobs.Schema, c.Jobs.Database = "sexton", "main"
	c.Databases = []config.Database{{Name: "main"}}
	all := &installation.Connections{Config: c, Databases: []database.Database{db.Connected}}
	for _, kind := range riverjobs.Kinds(c) {
		db.Exec(`INSERT INTO sexton.job_kinds (kind, queue, args, defaults, cron, max_attempts) VALUES ($1, $2, $3, '{}', $4, $5)
			ON CONFLICT (kind) DO NOTHING`, kind.Kind, kind.Queue, kind.Args, kind.Cron, kind.MaxAttempts)
	}
	db.Exec(`
		INSERT INTO application_settings (deletion_adjourned_period) VALUES (7);
		INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO users (id, username, email, name, user_type)
			SELECT id, 'p' || id, id || '@noreply.example.com', 'Placeholder ' || id, CASE WHEN id > 10 THEN 15 ELSE 0 END FROM generate_series(9, 11) AS id;
		INSERT INTO import_placeholder_user_details (placeholder_user_id, organization_id, deletion_attempts, last_deletion_attempt_at, last_error)
			VALUES (11, 1, 15, now() - interval '9 days', 'kept by a note');
		INSERT INTO users_ghost_user_migrations (user_id, consume_after, attempts, last_error) VALUES (9, now() + interval '1 hour', 2, 'issues: 23514');
		INSERT INTO groups (id, name, path, marked_for_deletion_on)
			SELECT id, 'g' || id, 'g' || id, current_date - 30 FROM generate_series(1, 4) AS id;
		INSERT INTO group_deletion_schedules (group_id, user_id, marked_for_deletion_on) SELECT id, 10, current_date - 30 FROM generate_series(1, 4) AS id;
		INSERT INTO sexton.group_destructions (group_id, user_id, attempts, last_error) VALUES (1, 10, 6, 'rows refer to it'), (2, 10, 25, 'others do'), (4, 10, 0, NULL);
		INSERT INTO sexton.group_deletion_failures (group_id, attempts, last_error, retry_at) VALUES (3, 3, 'nothing can be decided', now() + interval '2 hours');
		INSERT INTO sexton.river_job (kind, queue, args, max_attempts, attempt, state, scheduled_at, finalized_at, errors) VALUES
			('group_destroy', 'group_destroy', '{"group_id": 1, "user_id": 10}', 25, 6, 'retryable', now() + interval '3 hours', NULL, ARRAY['{"error": "of the job"}'::jsonb]),
			('group_destroy', 'group_destroy', '{"group_id": 2, "user_id": 10}', 25, 25, 'discarded', now(), now(), ARRAY['{"error": "of the job"}'::jsonb]),
			('group_destroy', 'group_destroy', '{"group_id": 4, "user_id": 10}', 25, 1, 'retryable', now() + interval '1 hour', NULL, ARRAY['{"error": "no connection"}'::jsonb]),
			('migrate_external_diff', 'migrate_external_diff', '{"diff_id": 2}', 3, 3, 'discarded', now(), now(), ARRAY['{"error": "once"}'::jsonb, '{"error": "thrice"}']),
			('migrate_external_diff', 'migrate_external_diff', '{"diff_id": 4}', 3, 3, 'discarded', now(), now(), ARRAY['{"error": "moved since"}'::jsonb]);
		SELECT sexton.enqueue('migrate_external_diff', '{"diff_id": 1}');
		UPDATE sexton.river_job SET state = 'retryable', attempt = 2, scheduled_at = now() + interval '1 hour', errors = ARRAY['{"error": "it broke"}'::jsonb]
			WHERE args ->> 'diff_id' = '1';
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
		INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (7, 1, 'title', 'branch', 'main');
		INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count, stored_externally)
			SELECT id, 7, 1, 1, id = 4 FROM generate_series(1, 4) AS id;
		INSERT INTO sexton.external_diffs (diff_id, skip_reason, skipped_at) VALUES (3, 'files_missing', now())`)
	return db, all
}

func TestRowsThatFailedStandWithTheirReason(t *testing.T) {
	t.Parallel()
	_, all := failingSite(t)
	now := time.Now()
	next := map[string]time.Duration{"group 1 (g1), its destruction": 3 * time.Hour, "group 3 (g3)": 2 * time.Hour, "diff 1": time.Hour}
	var shown []string
	for _, source := range sources(all) {
		failures, more, err := source.List(t.Context(), all, 10)
		require.NoError(t, err)
		require.False(t, more)
		for _, f := range failures {
			require.Equal(t, source.Name, f.Source)
			shown = append(shown, strings.Join([]string{f.Source, f.ID, f.What, f.Error}, " | "))
			if in := next[f.What]; in > 0 {
				require.WithinDuration(t, now.Add(in), f.Next, time.Minute, f.What)
			}
			require.Equal(t, f.Source == "placeholders", f.GivenUp, f.What)
		}
	}
	require.Equal(t, []string{
		"users | 9 | user 9 | issues: 23514", "placeholders | 11 | placeholder user 11 | kept by a note",
		"groups | 2 | group 2 (g2), its destruction | others do", "groups | 1 | group 1 (g1), its destruction | rows refer to it",
		"groups | 3 | group 3 (g3) | nothing can be decided",
		"diffs | 1 | diff 1 | it broke", "diffs | 2 | diff 2 | thrice", "diffs | 3 | diff 3 | skipped: files missing",
		"jobs | 3 | job 3, group_destroy | no connection",
	}, shown, "a job stands for itself only where no row tells of it")

	failures, more, err := sourceOf(t, all, "groups").List(t.Context(), all, 2)
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, failures, 2)
}

// The buttons.
func TestRowsThatFailedAreRetried(t *testing.T) {
	t.Parallel()
	db, all := failingSite(t)
	source := NewPageSource(all, &riverjobs.Bindings{}, slog.New(slog.DiscardHandler))
	retry := func(of, id string) string {
		said, err := source.Retry(t.Context(), web.Visitor{}, component.Retry{Source: of, ID: id})
		var refused *component.RefusedError
		require.True(t, err == nil || errors.As(err, &refused), err)
		if refused != nil {
			return refused.Reason
		}
		return said
	}

	const due = `SELECT kind, coalesce(args ->> 'group_id', args ->> 'diff_id') FROM sexton.river_job
		WHERE state = 'available' AND scheduled_at <= now() ORDER BY 1, 2`
	require.Contains(t, retry("groups", "1"), "1 group to be tried now")
	require.Equal(t, [][]string{{"group_destroy", "1"}}, db.Rows(due), "the job that waits")
	require.Contains(t, retry("groups", "2"), "1 group to be tried now")
	require.Equal(t, [][]string{{"group_destroy", "1"}, {"group_destroy", "2"}}, db.Rows(due), "one more, as the last has ended")
	require.Contains(t, retry("groups", "3"), "1 group to be tried now")
	require.Equal(t, [][]string{{"t"}}, db.Rows("SELECT retry_at <= now() FROM sexton.group_deletion_failures"))
	require.Contains(t, retry("groups", "4"), "group 4 has not failed")
	require.Contains(t, retry("groups", ""), "3 groups to be tried now")
	require.Len(t, db.Rows(due), 2, "the second time changes nothing")

	require.Contains(t, retry("diffs", "3"), "1 diff to be tried now")
	require.Contains(t, retry("diffs", "4"), "diff 4 is not in the database")
	require.Contains(t, retry("diffs", ""), "3 diffs to be tried now")
	require.Equal(t, [][]string{
		{"group_destroy", "1"}, {"group_destroy", "2"}, {"migrate_external_diff", "1"}, {"migrate_external_diff", "2"}, {"migrate_external_diff", "3"},
	}, db.Rows(due))
	require.Len(t, db.Rows("SELECT FROM sexton.river_job WHERE args ->> 'diff_id' = '1'"), 1, "the job that waits")
	require.Contains(t, retry("users", "9"), "1 user due now")
	require.Contains(t, retry("placeholders", "11"), "placeholder user 11: due now")
	require.Equal(t, [][]string{{"t", "0"}}, db.Rows(`SELECT consume_after <= now(), deletion_attempts FROM users_ghost_user_migrations, import_placeholder_user_details`))
	require.Equal(t, [][]string{{"groups 1"}, {"groups 2"}, {"groups 3"}, {"groups 4"}, {"all groups"}, {"diffs 3"}, {"diffs 4"}, {"all diffs"}, {"users 9"}, {"placeholders 11"}},
		db.Rows("SELECT target FROM sexton.audit ORDER BY id"))
}
