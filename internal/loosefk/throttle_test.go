package loosefk_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

// classOf is the sort of a reason, by its words.
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

// adaptive has the engine work in its own pace and returns what it says that it waits for, in order.
func (b bundle) adaptive() (said func() []string) {
	b.engine.Pace, b.engine.Adaptive = "adaptive", loosefk.Adaptive{Target: 100 * time.Millisecond, Duty: 1}
	b.engine.Limits = loosefk.Limits{Runtime: time.Minute}
	b.engine.Session.Limits.LockTimeout = 10 * time.Second
	reasons := []string{""}
	b.engine.Progress = func(_ context.Context, stats *loosefk.Stats) {
		if want := classOf(stats.WaitingFor); stats.WaitingClass != want {
			reasons = append(reasons, fmt.Sprintf("%q is of class %q, not %q", stats.WaitingFor, stats.WaitingClass, want))
		}
		if stats.WaitingFor != reasons[len(reasons)-1] {
			reasons = append(reasons, stats.WaitingFor)
		}
	}
	return func() []string { return reasons[1:] }
}

func TestRunHoldsWhileItIsAskedTo(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	said := b.adaptive()
	answers := []string{"replica r1 12 s behind", "replica r1 11 s behind", ""}
	b.engine.Throttle.Hold = func(ctx context.Context) string {
		if len(answers) == 0 {
			return ""
		}
		var children int64
		if err := b.Pool().QueryRow(ctx, "SELECT count(*) FROM children").Scan(&children); err != nil || children != 100 {
			return "children are gone: " + strconv.FormatInt(children, 10)
		}
		answer := answers[0]
		answers = answers[1:]
		return answer
	}
	b.Exec("DELETE FROM parents")
	began := time.Now()
	stats := b.run(t)
	require.GreaterOrEqual(t, time.Since(began), 750*time.Millisecond, "250 ms and then twice as long between the questions")
	require.EqualValues(t, 100, stats.DeleteCount)
	require.Zero(t, b.Pending(t))
	require.False(t, stats.Interrupted || stats.OverLimit)
	require.Equal(t, []string{"replica r1 12 s behind", "replica r1 11 s behind", ""}, said(), "each change is told at once")
	require.Empty(t, stats.WaitingFor)
}

// A run that holds until its time is over ends in order and blames nobody; the next one goes on.
func TestHeldRunEndsWithItsTime(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	said := b.adaptive()
	b.engine.Limits.Runtime = 400 * time.Millisecond
	b.engine.Throttle.Hold = func(context.Context) string { return "replica r1 12 s behind" }
	b.Exec("DELETE FROM parents WHERE id = 1")
	stats := b.run(t)
	require.True(t, stats.Interrupted)
	require.False(t, stats.OverLimit)
	require.Empty(t, stats.WaitingFor, "a run that has ended waits for nothing")
	require.Equal(t, []string{"replica r1 12 s behind", ""}, said())
	require.Zero(t, stats.DeleteCount+stats.Processed+stats.Rescheduled)
	require.Equal(t, [][]string{{"1", "0", "f", ""}}, b.tombstones())

	b.engine.Limits.Runtime, b.engine.Throttle.Hold = time.Minute, nil
	stats = b.run(t)
	require.EqualValues(t, 10, stats.DeleteCount)
	require.Zero(t, b.Pending(t))
}

func TestStopEndsAHeldRun(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.adaptive()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	b.engine.Throttle.Hold = func(context.Context) string { stop(); return "replica r1 12 s behind" }
	b.Exec("DELETE FROM parents WHERE id = 1")
	require.True(t, b.runWhile(ctx, t)().Interrupted)
	require.Equal(t, [][]string{{"1", "0", "f", ""}}, b.tombstones())
}

// However many batches there are, others are asked once a second.
func TestHoldIsAskedOnceASecond(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.adaptive()
	var asked []time.Time
	b.engine.Throttle.Hold = func(context.Context) string { asked = append(asked, time.Now()); return "" }
	b.Exec("DELETE FROM parents")
	b.run(t)
	require.NotEmpty(t, asked)
	for i := range asked[1:] {
		require.GreaterOrEqual(t, asked[i+1].Sub(asked[i]), 990*time.Millisecond)
	}
}

// While a batch waits for a row, the statistics name the session that has it.
func TestHolderOfALockIsNamed(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	said := b.adaptive()
	named := make(chan string, 100)
	b.engine.Throttle.Blocker = func(ctx context.Context, _ string) string {
		blocker, err := b.engine.Session.Blocker(ctx, b.Pool())
		if err == nil && blocker != "" {
			named <- blocker
		}
		return blocker
	}
	b.Exec("DELETE FROM parents WHERE id <= 3")
	tx := b.Begin(t, "SELECT FROM children WHERE id = 15 FOR UPDATE")
	ended := b.runWhile(t.Context(), t)
	blocker := <-named
	require.Regexp(t, "^row locked by pid "+strconv.Itoa(int(tx.Conn().PgConn().PID()))+` \(\S+\) since \d\d:\d\d:\d\dZ$`, blocker)
	require.NoError(t, tx.Rollback(t.Context()))
	stats := ended()
	require.Empty(t, stats.WaitingFor)
	require.EqualValues(t, 30, stats.DeleteCount)
	require.Empty(t, stats.Errors)
	require.Equal(t, []string{blocker, ""}, said())
}

// deadlocks makes three of four statements on children fail as if they had been chosen to end a deadlock.
const deadlocks = `
CREATE SEQUENCE attempts;
CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF nextval('public.attempts') % 4 <> 0 THEN
		RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01';
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER lose BEFORE DELETE ON children FOR EACH STATEMENT EXECUTE FUNCTION lose();`

// Tries in vain cost pauses, and nobody is blamed.
func TestDeadlocksAreFollowedByPauses(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.adaptive()
	b.Exec(deadlocks)
	b.Exec("DELETE FROM parents WHERE id = 1")
	stats := b.run(t)
	require.EqualValues(t, 10, stats.DeleteCount)
	require.Zero(t, stats.Rescheduled)
	require.Zero(t, b.Pending(t))
	require.EqualValues(t, 4, pgtest.Scalar[int64](t, b.Database, "SELECT last_value FROM attempts"))
}

func TestShareIsAskedAfterBatchesAndTold(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.adaptive()
	told := pace.Duty{Percent: 99, Why: "others"}
	b.engine.Throttle.Share = func(context.Context, float64, bool) (float64, pace.Duty) { return 0.99, told }
	seen := map[pace.Duty]bool{}
	b.engine.Progress = func(_ context.Context, stats *loosefk.Stats) { seen[stats.Duty] = true }
	b.Exec("DELETE FROM parents")
	stats := b.run(t)
	require.True(t, seen[told], "%v", seen)
	require.Zero(t, stats.Duty, "a run that has ended works at none")
}
