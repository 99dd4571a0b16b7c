package groupschedule_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/drain/dml"
	"sexton/internal/groupschedule"
	"sexton/internal/lease"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// The default rule decides whether a user may remove the grandchild (12), which is below
// the child (11) and the root (10).
func TestWhoMayRemoveAGroup(t *testing.T) {
	t.Parallel()
	s := setup(t, "DELETE FROM members", "ALTER TABLE users ALTER state DROP NOT NULL")
	const share = "INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (3, 'Namespace', 20, 50); INSERT INTO group_group_links (shared_group_id, shared_with_group_id, group_access, expires_at) VALUES "
	const own = "INSERT INTO members (user_id, source_type, source_id, access_level, state, requested_at, expires_at) VALUES "
	for name, test := range map[string]struct {
		statement string
		user      int64
		allowed   bool
	}{
		"any user":                      {"", 3, false},
		"an administrator":              {"", 1, true},
		"a blocked administrator":       {"UPDATE users SET state = 'blocked' WHERE id = 1", 1, false},
		"an unknown user":               {"", 404, false},
		"owner of the group":            {own + "(3, 'Namespace', 12, 50, 0, NULL, NULL)", 3, true},
		"owner of its parent":           {own + "(3, 'Namespace', 11, 50, 0, NULL, NULL)", 3, true},
		"owner of its root":             {own + "(3, 'Namespace', 10, 50, 0, NULL, NULL)", 3, true},
		"owner of another root":         {own + "(3, 'Namespace', 20, 50, 0, NULL, NULL)", 3, false},
		"owner of a project of that id": {own + "(3, 'Project', 12, 50, 0, NULL, NULL)", 3, false},
		"maintainer":                    {own + "(3, 'Namespace', 12, 40, 0, NULL, NULL)", 3, false},
		"owner who awaits acceptance":   {own + "(3, 'Namespace', 12, 50, 1, NULL, NULL)", 3, false},
		"user who requests ownership":   {own + "(3, 'Namespace', 12, 50, 0, now(), NULL)", 3, false},
		"owner until tomorrow": {own +
			"(3, 'Namespace', 12, 50, 0, NULL, (now() AT TIME ZONE 'UTC')::date + 1)", 3, true},
		"owner until today": {
			own + "(3, 'Namespace', 12, 50, 0, NULL, (now() AT TIME ZONE 'UTC')::date)",
			3, false,
		},
		"owner who was invited by mail": {"INSERT INTO members (source_type, source_id, access_level, invite_email) VALUES ('Namespace', 12, 50, 'ben@example.com')", 3, false},
		"owner who is banned": {own +
			"(3, 'Namespace', 12, 50, 0, NULL, NULL); UPDATE users SET state = 'banned' WHERE id = 3", 3, false},
		"owner who is blocked by LDAP": {own +
			"(3, 'Namespace', 12, 50, 0, NULL, NULL); UPDATE users SET state = 'ldap_blocked' WHERE id = 3", 3, false},
		"owner who waits for approval": {
			own +
				"(3, 'Namespace', 12, 50, 0, NULL, NULL); UPDATE users SET state = 'blocked_pending_approval' WHERE id = 3",
			3, false,
		},
		"deactivated owner": {own +
			"(3, 'Namespace', 12, 50, 0, NULL, NULL); UPDATE users SET state = 'deactivated' WHERE id = 3", 3, true},
		"owner without a state": {own +
			"(3, 'Namespace', 12, 50, 0, NULL, NULL); UPDATE users SET state = NULL WHERE id = 3", 3, true},
		"owner who is queued for deletion": {
			own +
				"(3, 'Namespace', 12, 50, 0, NULL, NULL); INSERT INTO users_ghost_user_migrations (user_id) VALUES (3)",
			3,
			false,
		},
		"shared with full access": {share + "(12, 20, 50, NULL)", 3, true},
		"shared from above":       {share + "(10, 20, 50, NULL)", 3, true},
		"shared with less access": {share + "(12, 20, 40, NULL)", 3, false},
		"shared until tomorrow":   {share + "(12, 20, 50, (now() AT TIME ZONE 'UTC')::date + 1)", 3, true},
		"shared until today":      {share + "(12, 20, 50, (now() AT TIME ZONE 'UTC')::date)", 3, false},
		"shared the other way":    {share + "(20, 12, 50, NULL)", 3, false},
		"shared, but not owned": {share +
			"(12, 20, 50, NULL); UPDATE members SET access_level = 40 WHERE user_id = 3", 3, false},
		"shared with a child of a group": {share + "(12, 21, 50, NULL)", 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			tx := pgtest.Begin(t, s.Pool())
			pgtest.Exec(t, tx, "INSERT INTO groups (id, parent_id, name, path) VALUES (21, 20, 'Below', 'below');"+
				test.statement)
			require.Equal(t, test.allowed, pgtest.Scalar[bool](t, tx, "SELECT sexton.may_remove_group($1, 12)", test.user))
		})
	}
	require.False(t, pgtest.Scalar[bool](t, s.Database, "SELECT sexton.may_remove_group(1, 404)"),
		"group does not exist")
}

// The SQL functions terminate even if the application has made a group its own ancestor.
func TestCyclesOfGroups(t *testing.T) {
	t.Parallel()
	s := setup(t, "UPDATE groups SET parent_id = 12 WHERE id = 10")
	require.True(t, s.call(t, "may_remove_group", 2, 12))
	require.False(t, pgtest.Scalar[bool](t, s.Database, "SELECT sexton.may_remove_group(3, 12)"))
	require.True(t, s.call(t, "schedule_group_deletion", 12, 2))
	require.True(t, s.call(t, "cancel_group_deletion", 12, 2))
}

// If the application has replaced the rule, its rule decides in the functions and in a
// pass. The new rule may call Sexton's default rule.
func TestApplicationReplacesTheRule(t *testing.T) {
	t.Parallel()
	s := setup(t, `CREATE OR REPLACE FUNCTION sexton.may_remove_group(user_id bigint, group_id bigint) RETURNS boolean LANGUAGE sql
		AS 'SELECT user_id = 4 OR user_id <> 1 AND sexton.default_may_remove_group(user_id, group_id)'`)
	s.requireRefusal(t, "schedule_group_deletion", 11, 1, "SX021",
		"schedule the deletion of group 11: user 1 may not remove it")
	require.True(t, s.call(t, "schedule_group_deletion", 11, 2))
	require.True(t, s.call(t, "schedule_group_deletion", 20, 4))
	s.ageMarks(31, 11, 20)
	s.Exec("DELETE FROM members")
	require.EqualValues(t, 1, s.pass(t).GroupsRestored)
	require.Equal(t, [][]string{{"20", "other-deletion_scheduled-20", "31", "4"}}, s.marked())

	// A rule that returns NULL denies the removal.
	s.Exec("CREATE OR REPLACE FUNCTION sexton.may_remove_group(user_id bigint, group_id bigint) RETURNS boolean LANGUAGE sql AS 'SELECT NULL::boolean'")
	s.requireRefusal(t, "schedule_group_deletion", 11, 2, "SX021",
		"schedule the deletion of group 11: user 2 may not remove it")
}

func TestTheGrantsAreEnough(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.schedule(t, 1, 31, 10, 11)
	s.Exec("UPDATE group_deletion_schedules SET user_id = 3 WHERE group_id = 11")
	application, worker, viewer := s.CreateRole(), s.CreateRole(), s.CreateRole()
	s.Exec(strings.NewReplacer(`:"application"`, application, `:"worker"`, worker, `:"viewer"`, viewer).Replace(
		migrate.Grants(migrate.Database{
			TrackedSchema: "public", Jobs: true,
			Components: []string{migrate.AdjournedGroups},
		})))
	connectAs := func(role string) *pgx.Conn {
		return pgtest.Connect(t, s.AsRole(role))
	}
	s.passWith(t, func(e *groupschedule.Engine) {
		e.Session.Conn = connectAs(worker)
		stats := pgtest.Must(e.Run(t.Context()))(t)
		require.EqualValues(t, 1, stats.GroupsEnqueued)
		require.EqualValues(t, 1, stats.GroupsRestored)
		require.Empty(t, stats.Errors)
	})
	for _, role := range []string{worker, viewer} {
		conn := connectAs(role)
		require.EqualValues(t, 1, pgtest.Must(groupschedule.ReadBacklog(t.Context(), conn, s.Connected.Names))(t).Due)
		require.Len(t, pgtest.Must(groupschedule.ReadGroups(t.Context(), conn, s.Connected.Names, 10))(t), 1)
		pgtest.Must(groupschedule.Examine(t.Context(), conn, s.Connected.Names))(t)
	}
	_, err := connectAs(viewer).Exec(t.Context(), "SELECT sexton.cancel_group_deletion(10, 1)")
	requireState(t, err, "42501", "permission denied for function cancel_group_deletion")
	_, err = connectAs(application).Exec(t.Context(), "SELECT sexton.restore_group(10, 1, '')")
	requireState(t, err, "42501", "permission denied for function restore_group")
	require.Len(t, s.marked(), 1)
}

// A locked group is deferred with the lock holder in the error, and the pass continues
// with the other groups.
func TestLockedGroupIsDeferred(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.call(t, "schedule_group_deletion", 11, 2)
	s.call(t, "schedule_group_deletion", 20, 1)
	s.ageMarks(31, 11, 20)
	tx := pgtest.Begin(t, s.Pool(), "SELECT FROM groups WHERE id = 11 FOR SHARE")
	holder := fmt.Sprintf(`^SQLSTATE 55P03: .+ \(row locked by pid %d \(`, tx.Conn().PgConn().PID())
	var stats *groupschedule.Stats
	s.passWith(t, func(e *groupschedule.Engine) {
		// The lock holder is queried six times during the timeout. A busy machine may miss
		// two of these queries.
		e.Session.Limits.LockTimeout = 3 * time.Second
		e.Blocker = func(ctx context.Context, _ string) string {
			blocker, _ := e.Session.Blocker(ctx, s.Pool())
			return blocker
		}
		stats = pgtest.Must(e.Run(t.Context()))(t)
	})
	require.EqualValues(t, 1, stats.GroupsSkipped)
	require.EqualValues(t, 1, stats.GroupsEnqueued)
	require.NoError(t, tx.Rollback(t.Context()))
	rows := s.Rows("SELECT group_id, last_error FROM sexton.group_deletion_failures")
	require.Len(t, rows, 1)
	require.Equal(t, "11", rows[0][0])
	require.Regexp(t, holder, rows[0][1])
}

// After a locked group, the lock timeout is 1 ms. Decisions about other groups succeed
// nevertheless, while other sessions hold the lock for NOTIFY for longer than that.
func TestNotificationsDeferNoGroup(t *testing.T) {
	t.Parallel()
	s := setup(t, "INSERT INTO groups (id, name, path) SELECT n, n, n FROM generate_series(100, 149) AS n")
	s.schedule(t, 1, 31, 11)
	var ids []int64
	for id := range int64(50) {
		ids = append(ids, 100+id)
	}
	s.schedule(t, 1, 31, ids...)
	ctx, stop := context.WithCancel(t.Context())
	var traffic sync.WaitGroup
	for range 4 {
		traffic.Go(func() {
			for ctx.Err() == nil {
				_, _ = s.Pool().Exec(ctx, "SELECT pg_notify('traffic', n::text) FROM generate_series(1, 20000) AS n")
			}
		})
	}
	tx := pgtest.Begin(t, s.Pool(), "SELECT FROM groups WHERE id = 11 FOR SHARE")
	var stats *groupschedule.Stats
	s.passWith(t, func(e *groupschedule.Engine) {
		e.Session.Limits.LockTimeout, e.Spacing = 100*time.Millisecond, 0
		stats = pgtest.Must(e.Run(t.Context()))(t)
	})
	stop()
	traffic.Wait()
	require.NoError(t, tx.Rollback(t.Context()))
	require.EqualValues(t, 1, stats.GroupsSkipped)
	require.EqualValues(t, 50, stats.GroupsEnqueued)
}

// A group that is restored after its page was read, and before the decision about it, is
// not enqueued.
func TestGroupIsRestoredDuringThePass(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.schedule(t, 1, 31, 10, 20)
	s.passWith(t, func(e *groupschedule.Engine) {
		var outcomes []groupschedule.Outcome
		e.Decided = func(_ context.Context, d groupschedule.Decision) {
			outcomes = append(outcomes, d.Outcome)
			if d.GroupID == dml.IntegerID(10) {
				require.True(t, s.call(t, "cancel_group_deletion", 20, 1))
			}
		}
		stats := pgtest.Must(e.Run(t.Context()))(t)
		require.Equal(t, []groupschedule.Outcome{groupschedule.Enqueued, groupschedule.Undue}, outcomes)
		require.EqualValues(t, 1, stats.GroupsSkipped)
	})
	require.Len(t, s.jobs(), 1)
}

func TestPassEndsEarly(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.schedule(t, 1, 31, 10, 20)
	ctx, stop := context.WithCancel(t.Context())
	s.passWith(t, func(e *groupschedule.Engine) {
		e.Decided = func(context.Context, groupschedule.Decision) { stop() }
		stats := pgtest.Must(e.Run(ctx))(t)
		require.True(t, stats.Interrupted)
		require.False(t, stats.OverLimit)
	})
	require.Len(t, s.jobs(), 1)
	s.passWith(t, func(e *groupschedule.Engine) {
		e.Runtime = time.Nanosecond
		require.True(t, pgtest.Must(e.Run(t.Context()))(t).OverLimit)
	})
	require.Len(t, s.jobs(), 1)
	s.pass(t)
	require.Equal(t, []string{"20", "1", "20", "scheduled"}, s.jobs()[1], "the next pass schedules after the waiting destruction")
}

// A worker that has lost its lease decides about no further group.
func TestLostLease(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.schedule(t, 1, 31, 10, 20)
	s.passWith(t, func(e *groupschedule.Engine) {
		e.Decided = func(context.Context, groupschedule.Decision) {
			s.Exec("UPDATE sexton.fences SET token = token + 1")
		}
		stats, err := e.Run(t.Context())
		require.ErrorIs(t, err, lease.ErrLost)
		require.EqualValues(t, 1, stats.GroupsEnqueued)
	})
	require.Len(t, s.jobs(), 1)
	require.Empty(t, s.Rows("SELECT FROM sexton.group_deletion_failures"), "no failure is recorded")
}
