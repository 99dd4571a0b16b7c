package groupschedule_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

func TestScheduleAndCancel(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.True(t, s.call(t, "schedule_group_deletion", 11, 2))
	require.Equal(t, [][]string{{"11", "child-deletion_scheduled-11", "0", "2"}}, s.marked())
	require.Equal(t, [][]string{{"Child-deletion_scheduled-11"}}, s.Rows("SELECT name FROM groups WHERE id = 11"))
	before := s.Rows("SELECT groups.xmin, schedules.xmin FROM groups JOIN group_deletion_schedules AS schedules ON group_id = id")
	require.False(t, s.call(t, "schedule_group_deletion", 11, 1), "another user schedules the group, too")
	require.Equal(t, before,
		s.Rows("SELECT groups.xmin, schedules.xmin FROM groups JOIN group_deletion_schedules AS schedules ON group_id = id"), "nothing changed")

	s.Exec("UPDATE users SET state = 'blocked' WHERE id = 2")
	require.False(t, s.call(t, "schedule_group_deletion", 11, 1))
	require.Equal(t, [][]string{{"11", "child-deletion_scheduled-11", "0", "1"}}, s.marked(),
		"a user that is blocked is replaced")
	s.Exec("UPDATE users SET state = 'active' WHERE id = 2")

	require.True(t, s.call(t, "cancel_group_deletion", 11, 1))
	require.Empty(t, s.marked())
	require.Equal(t, [][]string{{"Child", "child"}}, s.Rows("SELECT name, path FROM groups WHERE id = 11"))
	require.False(t, s.call(t, "cancel_group_deletion", 11, 2))
	require.Equal(t, [][]string{
		{"group_deletion_scheduled", "11", "2", ""}, {"group_restored", "11", "1", "cancelled"},
	}, s.events(), "one event for each change")
	require.Equal(t,
		[][]string{{`{"path": "child", "reason": "cancelled", "user_id": 1, "group_id": 11, "parent_id": 10, "scheduled_by": 1}`}},
		s.Rows("SELECT payload FROM sexton.events WHERE kind = 'group_restored'"))
}

func TestFunctionsRefuse(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for function, action := range map[string]string{
		"schedule_group_deletion": "schedule the deletion of group",
		"cancel_group_deletion":   "cancel the deletion of group",
		"delete_group_now":        "schedule the deletion of group",
	} {
		s.requireRefusal(t, function, 404, 1, "SX020", action+": there is no group 404")
		s.requireRefusal(t, function, nil, 1, "SX020", action+": there is no group NULL")
		s.requireRefusal(t, function, 11, 3, "SX021", action+" 11: user 3 may not remove it")
		s.requireRefusal(t, function, 11, 404, "SX021", action+" 11: user 404 may not remove it")
		s.requireRefusal(t, function, 11, nil, "SX021", action+" 11: user NULL may not remove it")
	}
	require.Empty(t, s.marked())
	require.Empty(t, s.events())
}

func TestCancelIsRefusedAfterADeletion(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.True(t, s.call(t, "schedule_group_deletion", 10, 1))
	require.True(t, s.call(t, "schedule_group_deletion", 12, 1))
	s.Exec("INSERT INTO sexton.group_destructions (group_id, user_id, done) VALUES (10, 1, 1)")
	s.requireRefusal(t, "cancel_group_deletion", 10, 1, "SX022", "cancel the deletion of group 10: its destruction has begun")
	s.requireRefusal(t, "cancel_group_deletion", 12, 1, "SX022",
		"cancel the deletion of group 12: the destruction of its ancestor group 10 has begun")
	require.False(t, s.call(t, "schedule_group_deletion", 11, 1), "the group is deleted with group 10")
	require.False(t, s.call(t, "delete_group_now", 10, 1))
	require.Len(t, s.marked(), 2)

	s.Exec("UPDATE sexton.group_destructions SET done = 0, touched = true")
	s.requireRefusal(t, "cancel_group_deletion", 10, 1, "SX022", "cancel the deletion of group 10: its destruction has begun")
	s.Exec("UPDATE sexton.group_destructions SET touched = false; INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (12, 1)")
	s.requireRefusal(t, "cancel_group_deletion", 12, 1, "SX022",
		"cancel the deletion of group 12: the destruction of its ancestor group 10 has begun")
	require.Len(t, s.Rows("SELECT FROM sexton.group_destructions"), 2, "a refused call changes nothing")
	require.True(t, s.call(t, "cancel_group_deletion", 10, 1), "no row was deleted")
	require.True(t, s.call(t, "cancel_group_deletion", 12, 1))
	require.Empty(t, s.marked())
	require.Empty(t, s.Rows("SELECT FROM sexton.group_destructions"))
}

// cancel_group_deletion fails with a snapshot from before the destruction began.
func TestCancelFromAnOldSnapshotFails(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.call(t, "schedule_group_deletion", 11, 2)
	tx := pgtest.Must(s.Pool().BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, tx, "SELECT FROM groups")
	s.Exec("INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (11, 2)")
	_, err := tx.Exec(t.Context(), "SELECT sexton.cancel_group_deletion(11, 2)")
	requireState(t, err, "SX022", "cancel the deletion of group 11: its destruction has begun")
	require.Len(t, s.marked(), 1)
}

func TestDeleteNow(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.True(t, s.call(t, "delete_group_now", 11, 2), "the group need not be scheduled")
	require.Equal(t, [][]string{{"11", "child-deletion_scheduled-11", "31", "2"}}, s.marked(), "the period has ended")
	require.Equal(t, [][]string{{"11", "2", "0", "available"}}, s.jobs())
	require.False(t, s.call(t, "delete_group_now", 11, 2))
	require.True(t, s.call(t, "schedule_group_deletion", 20, 1))
	require.True(t, s.call(t, "delete_group_now", 20, 1))
	require.Len(t, s.jobs(), 2)
	require.Equal(t, [][]string{
		{"group_deletion_scheduled", "11", "2", ""},
		{"group_deletion_hastened", "11", "2", ""},
		{"group_deletion_scheduled", "20", "1", ""},
		{"group_deletion_hastened", "20", "1", ""},
	}, s.events())
	require.True(t, s.call(t, "cancel_group_deletion", 20, 1), "the destruction has not begun")

	s.Exec("UPDATE application_settings SET deletion_adjourned_period = 30; DELETE FROM application_settings")
	s.requireRefusal(t, "delete_group_now", 20, 1, "SX023",
		"delete group 20 now: the application's settings have no period of 1 to 90 days")
	require.Len(t, s.marked(), 1, "the refused call keeps no schedule")
}

// Without the job kind delete_group_now makes the group due and inserts no job.
func TestDeleteNowWithoutTheJobKind(t *testing.T) {
	t.Parallel()
	s := setup(t, "DELETE FROM sexton.job_kinds")
	require.True(t, s.call(t, "delete_group_now", 11, 2))
	require.Empty(t, s.jobs())
}

func TestNamesAreTaken(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.True(t, s.call(t, "schedule_group_deletion", 11, 2))
	s.Exec("INSERT INTO groups (id, parent_id, name, path) VALUES (13, 10, 'Child', 'child'), (14, NULL, 'Child', 'child')")
	require.True(t, s.call(t, "cancel_group_deletion", 11, 2))
	names := s.Rows("SELECT name, path FROM groups WHERE id = 11")[0]
	require.Regexp(t, "^Child-[a-z0-9]{5}$", names[0])
	require.Regexp(t, "^child-[a-z0-9]{5}$", names[1])

	// A unique index ignores the case of paths, and another group already has the path
	// with the suffix.
	s.Exec("CREATE UNIQUE INDEX ON groups (lower(path)) WHERE parent_id IS NULL; DELETE FROM groups WHERE id = 14")
	require.True(t, s.call(t, "schedule_group_deletion", 20, 1))
	s.Exec("INSERT INTO groups (id, name, path) VALUES (21, 'Other', 'OTHER'), (22, 'Root', 'root-deletion_scheduled-10')")
	require.True(t, s.call(t, "cancel_group_deletion", 20, 1))
	require.Regexp(t, "^other-[a-z0-9]{5}$", s.Rows("SELECT path FROM groups WHERE id = 20")[0][0])
	require.True(t, s.call(t, "schedule_group_deletion", 10, 1))
	require.Regexp(t, "^root-[a-z0-9]{5}-deletion_scheduled-10$", s.Rows("SELECT path FROM groups WHERE id = 10")[0][0])
	require.True(t, s.call(t, "cancel_group_deletion", 10, 1))
	require.Regexp(t, "^root-[a-z0-9]{5}$", s.Rows("SELECT path FROM groups WHERE id = 10")[0][0])
}

// A group whose name or path has no room for the suffix keeps them, and can be scheduled
// and canceled.
func TestNamesWithoutRoomForTheSuffix(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"varchar": "ALTER TABLE groups ALTER name TYPE varchar(20)",
		"check":   "ALTER TABLE groups ADD CHECK (length(path) <= 20)",
	}, func(t *testing.T, _, limit string) {
		s := setup(t, limit)
		require.True(t, s.call(t, "schedule_group_deletion", 11, 2))
		require.Equal(t, [][]string{{"11", "child", "0", "2"}}, s.marked())
		require.True(t, s.call(t, "cancel_group_deletion", 11, 2))
		require.Equal(t, [][]string{{"Child", "child"}}, s.Rows("SELECT name, path FROM groups WHERE id = 11"))
	})
}

func TestChangedNamesAreKept(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.call(t, "schedule_group_deletion", 11, 2)
	s.Exec("UPDATE groups SET name = 'Renamed', path = '-deletion_scheduled-11' WHERE id = 11")
	require.True(t, s.call(t, "cancel_group_deletion", 11, 2))
	require.Equal(t, [][]string{{"Renamed", "-deletion_scheduled-11"}},
		s.Rows("SELECT name, path FROM groups WHERE id = 11"))

	// The application has set a mark without a suffix and a schedule. Scheduling the
	// group starts a new period.
	s.Exec("UPDATE groups SET marked_for_deletion_on = current_date - 99 WHERE id = 20")
	require.True(t, s.call(t, "schedule_group_deletion", 20, 1))
	require.Equal(t, [][]string{{"20", "other-deletion_scheduled-20", "0", "1"}}, s.marked())
	// The group has a schedule and no mark.
	s.Exec("UPDATE groups SET marked_for_deletion_on = NULL WHERE id = 20; UPDATE group_deletion_schedules SET user_id = 4")
	require.True(t, s.call(t, "schedule_group_deletion", 20, 1))
	require.Equal(t, [][]string{{"20", "other-deletion_scheduled-20", "0", "1"}}, s.marked())
	s.Exec("UPDATE groups SET marked_for_deletion_on = NULL WHERE id = 20")
	require.True(t, s.call(t, "cancel_group_deletion", 20, 1))
	require.Empty(t, s.marked())
}

// minimalTables creates an application that has only users, groups and projects.
const minimalTables = `
CREATE TABLE users (id bigint PRIMARY KEY, state text, admin boolean);
CREATE TABLE groups (id bigint PRIMARY KEY, parent_id bigint, name text, path text, marked_for_deletion_on date);
CREATE TABLE projects (id bigint PRIMARY KEY, group_id bigint);
INSERT INTO users VALUES (1, NULL, true), (2, 'active', NULL);
INSERT INTO groups VALUES (1, NULL, NULL, 'one');`

func TestFunctionsNeedFewTables(t *testing.T) {
	t.Parallel()
	s := site{dbtest.WithGroups(t, minimalTables)}
	require.Equal(t, [][]string{{"NULL"}}, s.Rows("SELECT sexton.group_deletion_cutoff()"))
	s.requireRefusal(t, "schedule_group_deletion", 1, 2, "SX021", "schedule the deletion of group 1: user 2 may not remove it")
	require.True(t, s.call(t, "schedule_group_deletion", 1, 1))
	require.Equal(t, [][]string{{"1", "one-deletion_scheduled-1", "0", "1"}}, s.marked())
	s.requireRefusal(t, "delete_group_now", 1, 1, "SX023",
		"delete group 1 now: the application's settings have no period of 1 to 90 days")
	require.Nil(t, s.pass(t).Cutoff)
	require.True(t, s.call(t, "cancel_group_deletion", 1, 1))
	require.Equal(t, [][]string{{"NULL", "one"}}, s.Rows("SELECT name, path FROM groups"))

	s.Exec("CREATE TABLE members (user_id bigint, source_type text, source_id bigint, access_level int, state smallint, requested_at timestamptz, expires_at date)")
	s.Exec("INSERT INTO members VALUES (2, 'Namespace', 1, 40)")
	s.requireRefusal(t, "schedule_group_deletion", 1, 2, "SX021", "schedule the deletion of group 1: user 2 may not remove it")
	s.Exec("UPDATE members SET access_level = 50")
	s.requireRefusal(t, "schedule_group_deletion", 1, 2, "SX021", "schedule the deletion of group 1: user 2 may not remove it")
	// The rule does not read the table members, which was created later, until a
	// migration has found the table.
	conn := pgtest.Must(pgx.ParseConfig(s.URL))(t)
	pgtest.Must(migrate.Up(t.Context(), pgtest.Logger(t), migrate.Database{
		Name: "main", Conn: conn, TrackedSchema: "public", Jobs: true,
		Components: []string{migrate.LooseForeignKeys, migrate.AdjournedGroups},
	}))(t)
	require.True(t, s.call(t, "schedule_group_deletion", 1, 2))
}

func TestFunctionsNeedGrants(t *testing.T) {
	t.Parallel()
	s := setup(t)
	role := s.CreateRole()
	s.Exec("GRANT USAGE ON SCHEMA sexton TO " + role)
	require.Empty(t, s.Rows(`SELECT oid::regprocedure FROM pg_proc
		WHERE pronamespace = 'sexton'::regnamespace AND proname ~ 'group' AND has_function_privilege($1, oid, 'EXECUTE')`, role))
	grants := migrate.Grants(migrate.Database{TrackedSchema: "public", Components: []string{migrate.AdjournedGroups}})
	section := regexp.MustCompile(`(?s)-- application: schedules and cancels the deletion of groups.*?;.*?;`).FindString(grants)
	require.NotEmpty(t, section)
	s.Exec(regexp.MustCompile(`:"(application|worker)"`).ReplaceAllString(section, role))
	// The functions run with the privileges of their owner.
	s.Exec("SET ROLE " + role +
		"; SELECT sexton.schedule_group_deletion(11, 2), sexton.cancel_group_deletion(11, 2), sexton.delete_group_now(11, 2); RESET ROLE")
	require.Len(t, s.marked(), 1)
	require.False(t, pgtest.Scalar[bool](t, s.Database, "SELECT has_table_privilege($1, 'groups', 'SELECT')", role))
}

func TestTriggersSeeNoPlannerSettings(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.RecordPlannerSettings("groups", "group_deletion_schedules")
	s.schedule(t, 1, 40, 10, 20)
	s.Exec("UPDATE users SET admin = false")
	require.EqualValues(t, 2, s.pass(t).GroupsRestored)
	s.RequireDefaultPlannerSettings(t, "groups", "group_deletion_schedules")
}
