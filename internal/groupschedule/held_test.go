package groupschedule_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/groupschedule"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

func TestLockedGroupIsPutOff(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.ask(t, "schedule_group_deletion", 11, 2)
	s.ask(t, "schedule_group_deletion", 20, 1)
	s.age(31, 11, 20)
	tx := pgtest.Begin(t, s.Pool(), "SELECT FROM groups WHERE id = 11 FOR SHARE")
	s.passWith(t, func(e *groupschedule.Engine) {
		e.Session.Limits.LockTimeout = 10 * time.Millisecond
		stats := pgtest.Must(e.Run(t.Context()))(t)
		require.EqualValues(t, 1, stats.GroupsFailed)
		require.EqualValues(t, 1, stats.GroupsEnqueued)
	})
	require.NoError(t, tx.Rollback(t.Context()))
	require.Contains(t, s.Rows("SELECT last_error FROM sexton.group_deletion_failures")[0][0], "SQLSTATE 55P03")
}

// A group that is restored between being looked up and being decided about keeps what it was given.
func TestRestoredMeanwhile(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, group := range []int64{10, 20} {
		s.ask(t, "schedule_group_deletion", group, 1)
	}
	s.age(31, 10, 20)
	s.passWith(t, func(e *groupschedule.Engine) {
		var outcomes []groupschedule.Outcome
		e.Decided = func(_ context.Context, d groupschedule.Decision) {
			outcomes = append(outcomes, d.Outcome)
			if d.GroupID == 10 {
				require.True(t, s.ask(t, "cancel_group_deletion", 20, 1))
			}
		}
		stats := pgtest.Must(e.Run(t.Context()))(t)
		require.Equal(t, []groupschedule.Outcome{groupschedule.Enqueued, groupschedule.Undue}, outcomes)
		require.EqualValues(t, 1, stats.GroupsSkipped)
	})
	require.Len(t, s.jobs(), 1)
}

func TestPassEndsInTime(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for _, group := range []int64{10, 20} {
		s.ask(t, "schedule_group_deletion", group, 1)
	}
	s.age(31, 10, 20)
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
	require.Equal(t, []string{"20", "1", "20", "scheduled"}, s.jobs()[1], "the next pass stands in line")
}

// A worker that has lost the lease decides about nothing.
func TestLostLease(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.ask(t, "schedule_group_deletion", 10, 1)
	s.ask(t, "schedule_group_deletion", 20, 1)
	s.age(31, 10, 20)
	s.passWith(t, func(e *groupschedule.Engine) {
		e.Decided = func(context.Context, groupschedule.Decision) {
			s.Exec("UPDATE sexton.fences SET token = token + 1")
		}
		stats, err := e.Run(t.Context())
		require.ErrorIs(t, err, lease.ErrLost)
		require.EqualValues(t, 1, stats.GroupsEnqueued)
	})
	require.Len(t, s.jobs(), 1)
	require.Empty(t, s.Rows("SELECT FROM sexton.group_deletion_failures"), "no group is to blame")
}
