package pace

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const testTarget = 20 * time.Millisecond

// newRun returns a run of one hour, and a list to which each reason for waiting is
// appended.
func newRun(ctx context.Context, duty float64) (r *Run, reasons *[]string) {
	reasons = &[]string{}
	r = &Run{Until: time.Now().Add(time.Hour), Stop: ctx, Target: testTarget}
	r.Share = r.Share.Configured(duty, func(Duty) {})
	r.Ended = func() bool { return r.Stop.Err() != nil || !time.Now().Before(r.Until) }
	r.Waits = func(_ context.Context, class WaitClass, reason string) {
		*reasons = append(*reasons, string(class)+":"+reason)
	}
	return r, reasons
}

func TestShortPausesAreAddedUp(t *testing.T) {
	t.Parallel()

	r, _ := newRun(t.Context(), 0.5)
	r.PauseAfterBatch(t.Context(), testTarget/4)
	require.Equal(t, testTarget/4, r.owed, "a single small statement is followed by no pause")
	began := time.Now()
	r.PauseAfterBatch(t.Context(), testTarget/4)
	require.GreaterOrEqual(t, time.Since(began), testTarget/2, "the pause after two small statements is as long as both")
	require.Zero(t, r.owed)

	r, _ = newRun(t.Context(), 0.2)
	began = time.Now()
	r.PauseAfterBatch(t.Context(), testTarget)
	require.GreaterOrEqual(t, time.Since(began), 4*testTarget, "a fifth of the time is work")
	require.Zero(t, r.owed)

	r, _ = newRun(t.Context(), 1)
	r.PauseAfterBatch(t.Context(), time.Hour)
	require.Zero(t, r.owed, "with a duty of 1 nothing is owed")

	r, _ = newRun(t.Context(), 0.5)
	r.Target = 0
	r.PauseAfterBatch(t.Context(), time.Hour)
	require.Zero(t, r.owed, "without a target nothing is owed")
}

func TestPausesAreBounded(t *testing.T) {
	t.Parallel()

	r, _ := newRun(t.Context(), 0.5)
	began := time.Now()
	r.PauseAfterBatch(t.Context(), time.Hour)
	require.GreaterOrEqual(t, time.Since(began), longestPause)
	require.Less(t, time.Since(began), 20*longestPause)
}

func TestStopEndsAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := newRun(ctx, 0.5)
		cancel()
		began := time.Now()
		r.PauseAfterBatch(t.Context(), time.Hour)
		require.Zero(t, time.Since(began))
	})
}

func TestPausesEndWithTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := newRun(t.Context(), 0.5)
		r.Until = time.Now().Add(testTarget)
		began := time.Now()
		r.PauseAfterBatch(t.Context(), time.Hour)
		require.Equal(t, testTarget, time.Since(began))
	})
}

func TestRunAwaitsReplicas(t *testing.T) {
	t.Parallel()

	r, reasons := newRun(t.Context(), 1)
	r.Await(t.Context())
	require.Empty(t, *reasons, "without Hold the run does not wait")

	results := []string{"behind", "less behind", ""}
	r.Hold = func(context.Context) string {
		result := results[0]
		results = results[1:]
		return result
	}
	began := time.Now()
	r.Await(t.Context())
	require.GreaterOrEqual(t, time.Since(began), replicaPause+2*replicaPause, "each pause is twice as long")
	require.Equal(t, []string{"replica:behind", "replica:less behind", "replica:"}, *reasons)
	r.Await(t.Context())
	require.Len(t, *reasons, 3, "Hold is called at most once a second")
}

func TestStopEndsAwait(t *testing.T) {
	t.Parallel()

	ctx, stop := context.WithCancel(t.Context())
	r, reasons := newRun(ctx, 1)
	r.Hold = func(context.Context) string { stop(); return "behind" }
	r.Await(t.Context())
	require.Equal(t, []string{"replica:behind", ":"}, *reasons, "an ended run does not wait")
}

func TestWatchReturnsTheLockHolder(t *testing.T) {
	t.Parallel()

	r, reasons := newRun(t.Context(), 1)
	require.Empty(t, r.Watch(t.Context(), "main")())
	require.Empty(t, *reasons)

	queried := make(chan struct{})
	results := []string{"pid 1", ""}
	queriedDatabase := ""
	r.Blocker = func(_ context.Context, database string) string {
		queriedDatabase = database
		if len(results) == 0 {
			return "unexpected call"
		}
		result := results[0]
		if results = results[1:]; len(results) == 0 {
			close(queried)
		}
		return result
	}
	endWatch := r.Watch(t.Context(), "main")
	<-queried
	require.Equal(t, "pid 1", endWatch(), "the last session that was found")
	require.Equal(t, "main", queriedDatabase)
	require.Equal(t, "lock:pid 1", (*reasons)[0])
	require.Equal(t, ":", (*reasons)[len(*reasons)-1], "the wait has ended")
	require.LessOrEqual(t, len(*reasons), 3)
}

// A lock holder that is found after the end of the batch is not reported.
func TestWatchEndsWithItsBatch(t *testing.T) {
	t.Parallel()

	r, reasons := newRun(t.Context(), 1)
	queried := make(chan struct{})
	r.Blocker = func(ctx context.Context, _ string) string {
		close(queried)
		<-ctx.Done()
		return "pid 1"
	}
	endWatch := r.Watch(t.Context(), "")
	<-queried
	require.Empty(t, endWatch())
	require.Equal(t, []string{":"}, *reasons)
}

func TestShareShortensStatements(t *testing.T) {
	t.Parallel()

	r, _ := newRun(t.Context(), 0.5)
	var duty Duty
	r.Share = Share(nil).Configured(0.5, func(d Duty) { duty = d })
	r.PauseAfterBatch(t.Context(), testTarget/8)
	require.Equal(t, Duty{50, "configured"}, duty)
	share, locked := 0.25, false
	r.Share = Share(func(_ context.Context, recentlyLocked bool) (float64, Duty) {
		locked = recentlyLocked
		return share, Duty{int(100 * share), "other sessions"}
	}).Configured(0, func(d Duty) { duty = d })
	r.owed = 0
	r.PauseAfterBatch(t.Context(), testTarget/8)
	require.False(t, locked)
	require.Equal(t, 3*testTarget/8, r.owed)
	require.Equal(t, Duty{25, "other sessions"}, duty)
	require.Equal(t, testTarget/4, r.Shortened(testTarget), "statements become shorter by the same factor")
	share = 1
	r.Locked()
	r.PauseAfterBatch(t.Context(), time.Hour)
	require.True(t, locked)
	require.Zero(t, r.owed, "with all of the time nothing is owed")
}

func TestLockBackoffGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b LockBackoff
		for _, pause := range []time.Duration{
			time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second,
			15 * time.Second,
		} {
			b.Fail("row locked by pid 7")
			// A failure during the backoff does not count, because one try may meet two
			// locks.
			b.Fail("row locked by pid 8")
			<-time.After(pause - 1)
			require.True(t, b.Waits())
			require.Equal(t, "row locked by pid 7", b.Reason)
			<-time.After(1)
			require.False(t, b.Waits())
		}
	})
}
