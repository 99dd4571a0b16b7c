package groupschedule_test

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/groupschedule"
	"sexton/internal/listen"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// due returns whether a group is due now, and the time until the next group is due.
func (s site) due(t *testing.T) (due listen.Due) {
	var seconds float64
	sql := s.Connected.Names.Render("SELECT " + groupschedule.DueSQL() + ", " + groupschedule.NextDueSQL())
	require.NoError(t, s.Pool().QueryRow(t.Context(), sql).Scan(&due.Now, &seconds))
	due.In = time.Duration(seconds * float64(time.Second))
	return due
}

func TestDueGroupsAreEnqueuedInOrder(t *testing.T) {
	t.Parallel()
	s := setup(t, "INSERT INTO groups (id, name, path) SELECT id, id, id FROM generate_series(100, 103) AS id")
	for _, group := range []int64{20, 10, 100, 101, 102, 103} {
		s.call(t, "schedule_group_deletion", group, 1)
	}
	s.call(t, "schedule_group_deletion", 11, 2)
	s.ageMarks(31, 10, 11, 20, 100, 101, 102)
	require.True(t, s.due(t).Now)
	var decisions []groupschedule.Decision
	s.passWith(t, func(e *groupschedule.Engine) {
		e.Page = 2
		e.Decided = func(_ context.Context, d groupschedule.Decision) { decisions = append(decisions, d) }
		stats := pgtest.Must(e.Run(t.Context()))(t)
		require.EqualValues(t, 6, stats.GroupsEnqueued)
		require.True(t, stats.Changed())
		require.Empty(t, stats.Errors)
	})
	require.Equal(t, [][]string{
		{"10", "1", "0", "available"},
		{"11", "2", "20", "scheduled"},
		{"20", "1", "40", "scheduled"},
		{"100", "1", "60", "scheduled"},
		{"101", "1", "80", "scheduled"},
		{"102", "1", "100", "scheduled"},
	}, s.jobs(), "a parent and its child have separate jobs")
	require.Len(t, decisions, 6)
	require.Equal(t, groupschedule.Decision{
		GroupID: dml.IntegerID(11), UserID: dml.IntegerID(2), Path: "child-deletion_scheduled-11",
		Outcome: groupschedule.Enqueued, RunAt: decisions[1].RunAt,
	}, decisions[1])
	require.Equal(t, 20*time.Second, decisions[1].RunAt.Sub(decisions[0].RunAt))

	require.False(t, s.due(t).Now)
	require.False(t, s.pass(t).Changed(), "the second pass changes nothing")
	require.Len(t, s.jobs(), 6)

	// The destruction of a group that becomes due later is scheduled after the waiting
	// destructions.
	s.ageMarks(31, 103)
	s.pass(t)
	require.Equal(t, []string{"103", "1", "120", "scheduled"}, s.jobs()[6])
}

func TestLongLineOfDestructionsIsContinued(t *testing.T) {
	t.Parallel()
	// At a spacing of 20 s, 4321 destructions take more than a day.
	s := setup(t, `INSERT INTO groups (id, name, path) SELECT id, id, id FROM generate_series(100000, 100009) AS id;
		INSERT INTO sexton.river_job (args, kind, max_attempts, queue, scheduled_at, state) SELECT
			jsonb_build_object('group_id', n, 'user_id', 1), 'group_destroy', 25, 'group_destroy', date_trunc('second', now()) + n * interval '20 seconds', 'scheduled'
		FROM generate_series(1, 4321) AS n;
		INSERT INTO sexton.river_job (args, kind, max_attempts, queue, scheduled_at, state) VALUES
			('{"group_id": 9999, "user_id": 1}', 'group_destroy', 25, 'group_destroy', now() + interval '9 days', 'retryable')`)
	s.Exec("UPDATE groups SET marked_for_deletion_on = current_date - 40 WHERE id >= 100000; INSERT INTO group_deletion_schedules SELECT id, 1, marked_for_deletion_on FROM groups WHERE id >= 100000")
	s.pass(t)
	require.Equal(t, [][]string{{"10", "20", "200"}}, s.Rows(`
		WITH line AS (SELECT (args ->> 'group_id')::int AS id, scheduled_at, scheduled_at - lag(scheduled_at) OVER (ORDER BY scheduled_at) AS gap FROM sexton.river_job WHERE state = 'scheduled')
		SELECT count(*) FILTER (WHERE id >= 100000), extract(epoch FROM min(gap))::int,
			extract(epoch FROM max(scheduled_at) - max(scheduled_at) FILTER (WHERE id < 100000))::int FROM line`))
}

// A destruction that is scheduled much later than the waiting ones does not delay new
// destructions.
func TestLineOfDestructionsEndsAtAGap(t *testing.T) {
	t.Parallel()
	type example struct {
		times   []string
		spacing time.Duration
		after   string
	}
	pgtest.Each(t, map[string]example{
		"no waiting destructions":     {[]string{"9 days"}, 0, "0"},
		"waiting destructions":        {[]string{"30 minutes", "80 minutes", "3 hours", "9 days"}, 0, "4820"},
		"destruction in the past":     {[]string{"-2 hours", "2 hours"}, 0, "0"},
		"spacing larger than the gap": {[]string{"1 hour", "3 hours", "9 days"}, 2 * time.Hour, "18000"},
	}, func(t *testing.T, _ string, test example) {
		s := setup(t)
		s.schedule(t, 1, 31, 10)
		s.Exec(`INSERT INTO sexton.river_job (args, kind, max_attempts, queue, scheduled_at, state)
			SELECT jsonb_build_object('group_id', 1000 + n, 'user_id', 1), 'group_destroy', 25, 'group_destroy', now() + delay::interval, 'scheduled'
			FROM unnest($1::text[]) WITH ORDINALITY AS other (delay, n)`, test.times)
		s.passWith(t, func(e *groupschedule.Engine) {
			e.Spacing = cmp.Or(test.spacing, spacing)
			require.EqualValues(t, 1, pgtest.Must(e.Run(t.Context()))(t).GroupsEnqueued)
		})
		// The difference is not exact, because the pass begins some time after the jobs
		// were inserted.
		require.Equal(t, [][]string{{"t"}}, s.Rows(`SELECT job.scheduled_at - other.scheduled_at + $1::interval - make_interval(secs => $2::text::float8)
				BETWEEN interval '0' AND interval '30 minutes'
			FROM sexton.river_job AS job CROSS JOIN sexton.river_job AS other
			WHERE job.args ->> 'group_id' = '10' AND other.args ->> 'group_id' = '1001'`, test.times[0], test.after))
	})
}

// Without spacing all destructions begin immediately, even if another destruction is
// waiting.
func TestWithoutSpacingAllBeginNow(t *testing.T) {
	t.Parallel()
	s := setup(t, `INSERT INTO sexton.river_job (args, kind, max_attempts, queue, scheduled_at, state)
		VALUES ('{"group_id": 99, "user_id": 1}', 'group_destroy', 25, 'group_destroy', now() + interval '30 minutes', 'scheduled')`)
	s.schedule(t, 1, 31, 10, 11, 20)
	s.passWith(t, func(e *groupschedule.Engine) {
		e.Spacing = 0
		require.EqualValues(t, 3, pgtest.Must(e.Run(t.Context()))(t).GroupsEnqueued)
	})
	require.Equal(t, [][]string{{"3"}},
		s.Rows("SELECT count(*) FROM sexton.river_job WHERE args ->> 'group_id' <> '99' AND scheduled_at <= clock_timestamp()"))
}

func TestGroupIsDueAfterTheCutoff(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.Zero(t, s.due(t))
	s.call(t, "schedule_group_deletion", 11, 2)
	midnight := pgtest.Scalar[float64](t, s.Database,
		"SELECT extract(epoch FROM date_trunc('day', now() AT TIME ZONE 'UTC') + interval '31 days' - now() AT TIME ZONE 'UTC')::float8")
	require.InDelta(t, midnight, s.due(t).In.Seconds(), 10, "the group is due at midnight")
	s.ageMarks(30, 11)
	require.False(t, s.due(t).Now, "the mark is equal to the cutoff")
	require.InDelta(t, midnight-30*86400, s.due(t).In.Seconds(), 10)
	require.False(t, s.pass(t).Changed())
	s.ageMarks(1, 11)
	require.True(t, s.due(t).Now)
	require.Zero(t, s.due(t).In)
	s.Exec("UPDATE application_settings SET deletion_adjourned_period = 31")
	require.False(t, s.due(t).Now, "a longer period")
	s.Exec("UPDATE application_settings SET deletion_adjourned_period = 7")
	require.EqualValues(t, 1, s.pass(t).GroupsEnqueued, "a shorter period")
}

func TestWithoutAPeriodNothingIsDue(t *testing.T) {
	t.Parallel()
	s := setup(t,
		"ALTER TABLE application_settings DROP CONSTRAINT application_settings_deletion_adjourned_period_check, ALTER deletion_adjourned_period DROP NOT NULL")
	s.schedule(t, 2, 999, 11)
	for _, settings := range []string{
		"UPDATE application_settings SET deletion_adjourned_period = NULL",
		"UPDATE application_settings SET deletion_adjourned_period = 0",
		"UPDATE application_settings SET deletion_adjourned_period = 91",
		"UPDATE application_settings SET deletion_adjourned_period = -5",
		"DELETE FROM application_settings", "ALTER TABLE application_settings DROP deletion_adjourned_period",
		"DROP TABLE application_settings",
	} {
		s.Exec(settings)
		require.Zero(t, s.due(t), settings)
		require.Equal(t, &groupschedule.Stats{Errors: []batch.FaultCounts{}}, s.pass(t), settings)
		if strings.Contains(settings, "DROP") {
			continue
		}
		problems := pgtest.Must(groupschedule.Examine(t.Context(), s.Pool(), s.Connected.Names))(t)
		require.Len(t, problems, 1, settings)
		s.Exec(problems[0].Fix)
		backlog := pgtest.Must(groupschedule.ReadBacklog(t.Context(), s.Pool(), s.Connected.Names))(t)
		require.EqualValues(t, 30, backlog.Period, settings)
	}
	require.Empty(t, s.jobs())
}

func TestLongestPeriodCounts(t *testing.T) {
	t.Parallel()
	s := setup(t,
		"ALTER TABLE application_settings DROP CONSTRAINT application_settings_id_check; INSERT INTO application_settings VALUES (2, 60), (3, 10)")
	require.EqualValues(t, 60, pgtest.Scalar[int32](t, s.Database,
		"SELECT (now() AT TIME ZONE 'UTC')::date - sexton.group_deletion_cutoff()"))
}

func TestMarkWithoutAScheduleIsIgnored(t *testing.T) {
	t.Parallel()
	s := setup(t, "UPDATE groups SET marked_for_deletion_on = current_date - 99 WHERE id = 20",
		"INSERT INTO group_deletion_schedules VALUES (11, 2, current_date - 99)")
	require.Zero(t, s.due(t))
	require.False(t, s.pass(t).Changed())
	backlog := pgtest.Must(groupschedule.ReadBacklog(t.Context(), s.Pool(), s.Connected.Names))(t)
	require.Equal(t, groupschedule.Backlog{Period: 30, Unscheduled: 1}, backlog)
}

// A destruction that has begun continues even if the mark or the schedule is removed or
// the period becomes longer. The rest of a partly deleted group is of no use.
func TestBegunDestructionContinues(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"unmarked":      "UPDATE groups SET marked_for_deletion_on = NULL",
		"unscheduled":   "DELETE FROM group_deletion_schedules",
		"longer period": "UPDATE application_settings SET deletion_adjourned_period = 90",
	}, func(t *testing.T, _, change string) {
		s := setup(t)
		s.schedule(t, 2, 31, 11)
		s.Exec("INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (11, 2); " + change)
		require.True(t, s.due(t).Now)
		require.EqualValues(t, 1, s.pass(t).GroupsEnqueued)
		require.Equal(t, [][]string{{"11", "2", "0", "available"}}, s.jobs())
		require.False(t, s.due(t).Now)
	})

	// Without a period a pass does nothing, so no group must be reported as due.
	s := setup(t)
	s.Exec("INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (11, 2); DELETE FROM application_settings")
	require.False(t, s.due(t).Now)
	// A pass deletes the record of a destruction whose group does not exist.
	s.Exec("INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (404, 2)")
	s.pass(t)
	require.Equal(t, [][]string{{"11"}}, s.Rows("SELECT group_id FROM sexton.group_destructions"))
}

func TestRemainingTimeIsEstimated(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.Exec("INSERT INTO sexton.group_destructions (group_id, user_id, done, total, begun_at, updated_at) VALUES (11, 2, 25, 100, now() - interval '10 s', now())")
	group := pgtest.Must(groupschedule.ReadGroup(t.Context(), s.Pool(), s.Connected.Names, "11"))(t)
	require.InDelta(t, 30, *group.ETASeconds, 0.001)
	s.Exec("UPDATE sexton.group_destructions SET done = 0")
	group = pgtest.Must(groupschedule.ReadGroup(t.Context(), s.Pool(), s.Connected.Names, "11"))(t)
	require.Nil(t, group.ETASeconds)
}

// A group is stuck after five failures, even if its destruction has not begun.
func TestStuckBeforeTheDestruction(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.call(t, "schedule_group_deletion", 11, 2)
	s.Exec("INSERT INTO sexton.group_deletion_failures (group_id, attempts, last_error, retry_at) VALUES (11, 4, 'kept', now() + interval '1 hour')")
	for attempts, want := range map[int]string{4: "deferred", 5: "stuck"} {
		s.Exec("UPDATE sexton.group_deletion_failures SET attempts = $1", attempts)
		groups := pgtest.Must(groupschedule.ReadGroups(t.Context(), s.Pool(), s.Connected.Names, 10))(t)
		require.Len(t, groups, 1)
		require.Equal(t, want, groups[0].State)
		backlog := pgtest.Must(groupschedule.ReadBacklog(t.Context(), s.Pool(), s.Connected.Names))(t)
		require.EqualValues(t, attempts-4, backlog.Stuck)
	}
}

func TestFailureDelaysNoOtherGroup(t *testing.T) {
	t.Parallel()
	s := setup(t,
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept' USING ERRCODE = '53ZZZ'; END $$`,
		"CREATE TRIGGER refuse BEFORE UPDATE ON groups FOR EACH ROW WHEN (NEW.id = 11 AND NEW.marked_for_deletion_on IS NULL) EXECUTE FUNCTION refuse()")
	s.schedule(t, 1, 31, 10, 11, 20)
	s.Exec("UPDATE group_deletion_schedules SET user_id = 3 WHERE group_id = 11")
	stats := s.pass(t)
	require.EqualValues(t, 2, stats.GroupsEnqueued)
	require.EqualValues(t, 1, stats.GroupsFailed)
	require.Equal(t, []batch.FaultCounts{{Table: "groups", SQLState: "53ZZZ", Message: "kept", Count: 1}}, stats.Errors)
	const failures = "SELECT group_id, attempts, last_error, ceil(extract(epoch FROM retry_at - clock_timestamp()) / 60)::int FROM sexton.group_deletion_failures"
	require.Equal(t, [][]string{{"11", "1", "SQLSTATE 53ZZZ: kept", "1"}}, s.Rows(failures))
	require.False(t, s.due(t).Now, "deferred")
	require.InDelta(t, 60, s.due(t).In.Seconds(), 10)
	require.False(t, s.pass(t).Changed())

	for _, minutes := range []string{"2", "4", "8"} {
		s.Exec("UPDATE sexton.group_deletion_failures SET retry_at = now()")
		require.True(t, s.due(t).Now)
		s.pass(t)
		require.Equal(t, minutes, s.Rows(failures)[0][3])
	}
	s.Exec("UPDATE sexton.group_deletion_failures SET retry_at = now(), attempts = 1000")
	s.pass(t)
	require.Equal(t, "1440", s.Rows(failures)[0][3])
	require.Len(t, s.jobs(), 2)

	s.Exec("DROP TRIGGER refuse ON groups; UPDATE sexton.group_deletion_failures SET retry_at = now()")
	require.EqualValues(t, 1, s.pass(t).GroupsRestored)
	require.Empty(t, s.Rows(failures))

	// A pass deletes the failure of a group that does not exist.
	s.Exec("INSERT INTO sexton.group_deletion_failures VALUES (404, 1, 'gone', now() + interval '1 hour')")
	s.pass(t)
	require.Empty(t, s.Rows(failures))
}

// decide_group_deletion checks again whether the group is due, because it may have
// changed since the page was read.
func TestDecisionChecksTheGroupAgain(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, group := range []int64{10, 12, 20} {
		s.call(t, "schedule_group_deletion", group, 1)
	}
	s.ageMarks(30, 12)
	s.ageMarks(31, 20)
	s.Exec("INSERT INTO groups (id, name, path, marked_for_deletion_on) VALUES (30, 'x', 'x', current_date - 99)")
	decide := func(group int64) []string {
		return s.Rows("SELECT outcome, coalesce(user_id, 0), coalesce(path, ''), coalesce(reason, '') FROM sexton.decide_group_deletion($1, now())", group)[0]
	}
	require.Equal(t, []string{"undue", "0", "root-deletion_scheduled-10", ""}, decide(10), "group was marked again")
	require.Equal(t, []string{"undue", "0", "grandchild-deletion_scheduled-12", ""}, decide(12),
		"mark is equal to the cutoff")
	require.Equal(t, []string{"undue", "0", "child", ""}, decide(11), "group was restored")
	require.Equal(t, []string{"undue", "0", "x", ""}, decide(30), "group has no schedule")
	require.Equal(t, []string{"undue", "0", "", ""}, decide(404), "group does not exist")
	require.Equal(t, []string{"enqueued", "1", "other-deletion_scheduled-20", ""}, decide(20))
	require.Equal(t, []string{"waiting", "1", "other-deletion_scheduled-20", ""}, decide(20), "the job exists already")
	s.call(t, "delete_group_now", 11, 2)
	s.Exec("DELETE FROM members")
	require.Equal(t, []string{"waiting", "2", "child-deletion_scheduled-11", ""}, decide(11),
		"the destruction checks the permission")
	require.Len(t, s.jobs(), 2)
}

// If a CREATE INDEX CONCURRENTLY has failed, the proposed fix is a REINDEX. A second
// CREATE INDEX would keep the invalid index.
func TestExamineReportsAMissingIndex(t *testing.T) {
	t.Parallel()
	s := setup(t, "DROP INDEX groups_marked_for_deletion_on_id_idx",
		"INSERT INTO groups (id, name, path) SELECT n, n, n FROM generate_series(100001, 110000) AS n",
		"ANALYZE groups")
	fixes := func() []string {
		problems := pgtest.Must(groupschedule.Examine(t.Context(), s.Pool(), s.Connected.Names))(t)
		return render.Each(problems, func(p problem.Problem) string { return p.Fix })
	}
	create := `CREATE INDEX CONCURRENTLY ON "public"."groups" ("marked_for_deletion_on")`
	require.Equal(t, []string{create}, fixes())
	s.Exec(create)
	require.Empty(t, fixes())
	s.Exec("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'groups_marked_for_deletion_on_idx'::regclass")
	require.Equal(t, []string{"REINDEX INDEX CONCURRENTLY public.groups_marked_for_deletion_on_idx"}, fixes())
	s.Exec(fixes()[0])
	require.Empty(t, fixes())
}
