package records_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

// backdate moves the mark of a group back by a number of days.
func backdate(s *clitest.Site, group int64, days int) {
	s.Exec("UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - $1::int WHERE id = $2", days, group)
	s.Exec("UPDATE group_deletion_schedules SET marked_for_deletion_on = marked_for_deletion_on - $1::int WHERE group_id = $2", days, group)
}

func TestGroupsAreScheduledAndRestored(t *testing.T) {
	t.Parallel()
	s := clitest.GroupSite(t)
	require.Equal(t, "no group is scheduled for deletion\n", s.OK("group", "list"))
	require.Regexp(t, `^group 11: scheduled for deletion, as child-deletion_scheduled-11, due on \d{4}-\d\d-\d\d \(UTC\)\n$`,
		s.OK("group", "schedule", "11", "--by", "2"))
	require.Regexp(t, `^group 11: is already scheduled for deletion, as `, s.OK("group", "schedule", "11", "--by", "1"))
	require.Regexp(t,
		`(?m)^11 +child-deletion_scheduled-11 +adjourned +2 +\d{4}-\d\d-\d\d +\d{4}-\d\d-\d\d +- +- +0 +-$`,
		s.OK("group", "list"))
	require.Equal(t, "group 11: restored\n", s.OK("group", "cancel", "11", "--by", "2"))
	require.Equal(t, map[string]any{"group_id": 11.0, "changed": false, "group": nil},
		s.JSON(0, "group", "cancel", "11", "--by", "2"))

	s.OK("group", "schedule", "11", "--by", "2")
	require.Equal(t, "done", s.JSON(0, "job", "run", adjournedKind).(map[string]any)["outcome"])
	require.Empty(t, s.Rows("SELECT FROM sexton.river_job"), "the group is not due")
	backdate(s, 11, 31)
	require.Equal(t, "group 20: due for deletion now, as other-deletion_scheduled-20\n",
		s.OK("group", "delete", "20", "--now", "--by", "1"))
	require.Equal(t, "adjourned_group_deletion on main: done\n  groups     1 to be destroyed, 0 restored, 0 deferred\n",
		s.OK("job", "run", adjournedKind))
	require.Equal(t, [][]string{{"20"}, {"11"}},
		s.Rows("SELECT args ->> 'group_id' FROM sexton.river_job ORDER BY scheduled_at"))
	require.Zero(t,
		s.JSON(0, "job", "run", adjournedKind).(map[string]any)["stats"].(map[string]any)["groups_enqueued"],
		"the second run changes nothing")

	listed := s.JSON(0, "group", "list").(map[string]any)
	require.EqualValues(t, 30, listed["period_days"])
	require.EqualValues(t, 2, listed["due"])
	require.Equal(t, "enqueued", listed["groups"].([]any)[0].(map[string]any)["state"])
	require.Len(t, s.JSON(0, "group", "list", "--limit", "1").(map[string]any)["groups"], 1)
}

func TestGroupCommandsRefuse(t *testing.T) {
	t.Parallel()
	s := clitest.GroupSite(t)
	for _, verb := range [][]string{{"schedule"}, {"cancel"}, {"delete", "--now"}} {
		s.RequireError(1, "group 11: user 3 may not remove it (Administrators may remove it, and so may owners",
			append(append([]string{"group"}, verb...), "11", "--by", "3")...)
		require.Equal(t, 1, s.Run(append(append([]string{"group"}, verb...), "404", "--by", "1")...).Code, verb)
	}
	for _, args := range [][]string{
		{"group", "schedule", "--by", "1"},
		{"group", "schedule", "11"},
		{"group", "cancel", "root", "--by", "1"},
		{"group", "schedule", "0", "--by", "1"},
		{"group", "delete", "11", "--by", "1"},
		{"group", "list", "--limit", "0"},
		{"group", "list", "11"},
	} {
		require.Equal(t, 2, s.Run(args...).Code, args)
	}
	s.OK("group", "schedule", "10", "--by", "1")
	s.OK("group", "schedule", "11", "--by", "1")
	s.Exec("INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (10, 1)")
	r := s.Run("group", "cancel", "11", "--by", "2")
	require.Equal(t, 1, r.Code)
	require.Equal(t, "sexton: cancel the deletion of group 11: the destruction of its ancestor group 10 has begun "+
		"(Cancel the deletion of that group, which is possible until its first row is deleted.)\n", r.Stderr)
	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\nghost_users: {enabled: true}\n")
	require.Equal(t, 2, s.Run("group", "list").Code, "not enabled")
}

func TestStatusAndDoctorShowGroups(t *testing.T) {
	t.Parallel()
	s := clitest.GroupSite(t)
	// Enqueuing the destruction of a group fails if its kind is missing in job_kinds.
	s.Exec("DELETE FROM sexton.job_kinds WHERE kind = 'group_destroy'")
	for _, group := range []string{"10", "11", "20"} {
		s.OK("group", "schedule", group, "--by", "1")
	}
	backdate(s, 10, 40)
	backdate(s, 11, 31)
	s.OK("job", "run", adjournedKind)
	s.Exec(`INSERT INTO sexton.group_destructions (group_id, user_id, begun_at, step, done, total, attempts, last_error)
		VALUES (10, 1, now(), 'issues', 70, 100, 5, 'issues: SQLSTATE 23503: kept');
		INSERT INTO groups (id, name, path, marked_for_deletion_on) VALUES (30, 'Marked', 'marked', current_date - 1)`)

	status := s.OK("status")
	require.Regexp(t, `group_deletion_schedules +main +2 +\d+h0m0s|group_deletion_schedules +main +2 `, status)
	require.Contains(t, status,
		"Groups to be deleted: 1 in their period, 2 due, 2 deferred, 1 being destroyed (1 stuck), 1 with a mark and no schedule")
	require.Regexp(t,
		`(?m)^10 +root-deletion_scheduled-10 +stuck +1 +\S+ +\S+ +\S+ +70 of 100 +5 +issues: SQLSTATE 23503: kept$`,
		status)
	require.Regexp(t,
		`(?m)^11 +child-deletion_scheduled-11 +deferred +1 .* 1 +SQLSTATE 22023: enqueue: there is no kind 'group_destroy'$`, status)
	require.Regexp(t, `(?m)^30 +marked +unscheduled +- `, status)

	s.Exec(`ALTER TABLE group_deletion_schedules ADD CONSTRAINT user_cascade FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
		DROP TRIGGER sexton_group_schedule_lost ON group_deletion_schedules; ALTER TABLE members DROP requested_at; DELETE FROM application_settings`)
	r := s.Run("doctor")
	require.Equal(t, 5, r.Code)
	for _, finding := range []string{
		"error: main adjourned_groups: members.requested_at: these columns do not exist, so the default rule cannot decide who may remove a group\n",
		"warning: main adjourned_groups: group_deletion_schedules: schedules are deleted with their user (user_cascade), and the trigger sexton_group_schedule_lost, " +
			"which passes them on, is missing or disabled: the groups keep their marks forever\n",
		"error: main adjourned_groups: application_settings.deletion_adjourned_period: no period of 1 to 90 days is set, so no group is ever due\n",
		"warning: main adjourned_groups: groups: 1 marked for deletion without a schedule, which are never destroyed: 30\n",
		"error: main adjourned_groups: group_destructions: 1 stuck: 10\n",
	} {
		require.Contains(t, r.Stdout, finding)
	}
	s.Exec("ALTER TABLE members ADD requested_at date")
	report := s.JSON(0, "job", "run", adjournedKind).(map[string]any)
	require.Equal(t, "skipped", report["outcome"])
	require.Equal(t, "application_settings.deletion_adjourned_period is not set to 1 to 90 days", report["reason"])
	require.Contains(t, s.OK("status"), "a period of 1 to 90 days in application_settings.deletion_adjourned_period")
}

func TestGroupDeletionIsPlanned(t *testing.T) {
	t.Parallel()
	s := clitest.GroupSite(t)
	s.Exec(`CREATE TABLE audits (id bigint PRIMARY KEY, group_id bigint REFERENCES groups); CREATE INDEX ON audits (group_id);
		INSERT INTO projects (id, group_id, name, path) SELECT n, 11, n, n FROM generate_series(1, 3) AS n`)
	require.Regexp(t,
		`(?s)^TABLE +CHANGE +ROWS\n.*\nprojects +deleted +3\n\n6 rows, about 0s at an assumed 2000 rows a second\n`+
			`blocks the deletion until its rows are deleted: audits.group_id refers to groups, and foreign key audits_group_id_fkey has no ON DELETE action\n$`,
		s.OK("group", "delete", "--plan", "10"))
	s.Exec("INSERT INTO audits VALUES (7, 11)")
	plan := s.JSON(0, "group", "delete", "--plan", "10", "--by", "3").(map[string]any)
	require.Equal(t, map[string]any{"groups": 2.0, "projects": 3.0, "members": 1.0}, plan["deleted"])
	require.Equal(t, []any{"user 3 may not remove it"}, plan["forbidden"])
	require.Equal(t,
		[]any{"audits.group_id refers to groups, and foreign key audits_group_id_fkey has no ON DELETE action"},
		plan["blocking"])
	require.Equal(t, [][]string{{"NULL"}}, s.Rows("SELECT DISTINCT marked_for_deletion_on FROM groups"))
	require.Equal(t, "sexton: there is no group 404\n", s.Run("group", "delete", "--plan", "404").Stderr)
	require.Equal(t, 2, s.Run("group", "delete", "--plan", "--now", "10", "--by", "1").Code)

	s.Exec("DELETE FROM audits; INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome, changed, stats)" +
		"VALUES ('group_destroy', 'main', 'h', now() - interval '10 s', now(), 'done', true, '{\"deleted\": {\"notes\": 4}, \"nullified\": {\"a.b\": 1}}')")
	plan = s.JSON(0, "group", "delete", "--plan", "10").(map[string]any)
	require.InDelta(t, 0.5, plan["rows_per_second"], 0.001)
	require.InDelta(t, 12, plan["about_seconds"], 0.01)
	require.Equal(t, true, plan["measured"])
	require.Equal(t, "group 10: is not scheduled for deletion, so there is nothing to cancel\n",
		s.OK("group", "cancel", "10", "--by", "1"))
}
