package groupschedule_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/groupschedule"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

func TestTheGrantsAreEnough(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, group := range []int64{10, 11} {
		s.ask(t, "schedule_group_deletion", group, 1)
	}
	s.age(31, 10, 11)
	s.Exec("UPDATE group_deletion_schedules SET user_id = 3 WHERE group_id = 11")
	application, worker, viewer := s.CreateRole(), s.CreateRole(), s.CreateRole()
	s.Exec(strings.NewReplacer(`:"application"`, application, `:"worker"`, worker, `:"viewer"`, viewer).Replace(
		migrate.Grants(migrate.Database{JobsSchema: "sexton", TrackedSchema: "public", Jobs: true, Components: []string{migrate.AdjournedGroups}})))
	as := func(role string) *pgx.Conn {
		conn := pgtest.Connect(t, s.AsRole(role))
		return conn
	}
	s.passWith(t, func(e *groupschedule.Engine) {
		e.Session.Conn = as(worker)
		stats := pgtest.Must(e.Run(t.Context()))(t)
		require.EqualValues(t, 1, stats.GroupsEnqueued)
		require.EqualValues(t, 1, stats.GroupsRestored)
		require.Empty(t, stats.Errors)
	})
	for _, role := range []string{worker, viewer} {
		conn := as(role)
		require.EqualValues(t, 1, pgtest.Must(groupschedule.ReadBacklog(t.Context(), conn, s.Connected.Names))(t).Due)
		require.Len(t, pgtest.Must(groupschedule.ReadGroups(t.Context(), conn, s.Connected.Names, 10))(t), 1)
		pgtest.Must(groupschedule.Examine(t.Context(), conn, s.Connected.Names))(t)
	}
	_, err := as(viewer).Exec(t.Context(), "SELECT sexton.cancel_group_deletion(10, 1)")
	requireState(t, err, "42501", "permission denied for function cancel_group_deletion")
	_, err = as(application).Exec(t.Context(), "SELECT sexton.restore_group(10, 1, '')")
	requireState(t, err, "42501", "permission denied for function restore_group")
	require.Len(t, s.marked(), 1)
}
