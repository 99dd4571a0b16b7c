package loosefk_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

// classOf returns the class that a reason for waiting has.
func classOf(reason string) pace.WaitClass {
	switch {
	case reason == "":
		return ""
	case strings.HasPrefix(reason, "replica "):
		return pace.WaitReplica
	case strings.HasPrefix(reason, "rows of "):
		return pace.WaitBackOff
	default:
		return pace.WaitLock
	}
}

// setupWaiting returns an engine with tombstones of the parents that meet the condition,
// and a function that returns the reasons for which it has waited, in order.
func setupWaiting(t *testing.T, deleted string) (b bundle, reasons func() []string) {
	b = setupAdaptive(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec("DELETE FROM parents WHERE " + deleted)
	b.engine.Adaptive.Target = 100 * time.Millisecond
	b.engine.Session.Limits.LockTimeout = 10 * time.Second
	all := []string{""}
	b.engine.Progress = func(_ context.Context, stats *loosefk.Stats) {
		if want := classOf(stats.WaitingFor); stats.WaitingClass != want {
			all = append(all, fmt.Sprintf("%q is of class %q, not %q", stats.WaitingFor, stats.WaitingClass,
				want))
		}
		if stats.WaitingFor != all[len(all)-1] {
			all = append(all, stats.WaitingFor)
		}
	}
	return b, func() []string { return all[1:] }
}

func TestRunWaitsWhileHoldReturnsAReason(t *testing.T) {
	t.Parallel()
	b, reasons := setupWaiting(t, "true")
	results := []string{"replica r1 12 s behind", "replica r1 11 s behind", ""}
	b.engine.Throttle.Hold = func(context.Context) string {
		if len(results) == 0 {
			return ""
		}
		if left := b.ids("SELECT count(*) FROM children"); left[0] != "100" {
			return "children were deleted: " + left[0]
		}
		result := results[0]
		results = results[1:]
		return result
	}
	began := time.Now()
	stats := b.runToEnd(t)
	require.GreaterOrEqual(t, time.Since(began), 750*time.Millisecond,
		"the pauses are 250 ms and 500 ms")
	require.EqualValues(t, 100, stats.DeleteCount)
	require.False(t, stats.Interrupted || stats.OverLimit)
	require.Equal(t, []string{"replica r1 12 s behind", "replica r1 11 s behind", ""}, reasons(),
		"each change is reported immediately")
	require.Empty(t, stats.WaitingFor)
}

// While a batch waits for a row, the statistics contain the lock holder.
func TestLockHolderIsReported(t *testing.T) {
	t.Parallel()
	b, reasons := setupWaiting(t, "id <= 3")
	named := make(chan string, 100)
	b.engine.Throttle.Blocker = func(ctx context.Context, _ string) string {
		blocker, err := b.engine.Session.Blocker(ctx, b.Pool())
		if err == nil && blocker != "" {
			named <- blocker
		}
		return blocker
	}
	tx := b.Begin(t, "SELECT FROM children WHERE id = 15 FOR UPDATE")
	ended := b.runWhile(t.Context(), t)
	blocker := <-named
	require.Regexp(t, "^row locked by pid "+strconv.Itoa(int(tx.Conn().PgConn().PID()))+
		` \(\S+\) since \d\d:\d\d:\d\dZ$`, blocker)
	require.NoError(t, tx.Rollback(t.Context()))
	stats := ended()
	require.Empty(t, stats.WaitingFor)
	require.EqualValues(t, 30, stats.DeleteCount)
	require.Empty(t, stats.Errors)
	require.Equal(t, []string{blocker, ""}, reasons())
}

// After a deadlock the run pauses. The tombstone gets no attempt, although three of four
// statements on children fail.
func TestDeadlocksAreFollowedByPauses(t *testing.T) {
	t.Parallel()
	b, _ := setupWaiting(t, "id = 1")
	b.Exec("CREATE SEQUENCE attempts;" + dbtest.OnStatement("DELETE", "children",
		"IF nextval('public.attempts') % 4 <> 0 THEN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END IF;"))
	stats := b.runToEnd(t)
	require.EqualValues(t, 10, stats.DeleteCount)
	require.Zero(t, stats.Rescheduled)
	require.LessOrEqual(t, pgtest.Scalar[int64](t, b.Database, "SELECT last_value FROM attempts"), int64(20))
}
