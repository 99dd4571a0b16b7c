package pace

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const target = 20 * time.Millisecond

// working is a run that may go on for an hour, and what it says that it waits for.
func working(ctx context.Context, duty float64) (r *Run, said *[]string) {
	said = &[]string{}
	r = &Run{Until: time.Now().Add(time.Hour), Stop: ctx, Target: target, Duty: duty}
	r.Ended = func() bool { return r.Stop.Err() != nil || !time.Now().Before(r.Until) }
	r.Waits = func(_ context.Context, class WaitClass, reason string) {
		*said = append(*said, string(class)+":"+reason)
	}
	return r, said
}

func TestPausesFollowOnceEnoughIsOwed(t *testing.T) {
	t.Parallel()

	r, _ := working(t.Context(), 0.5)
	r.Breathe(t.Context(), target/4)
	require.Equal(t, target/4, r.owed, "a single small statement is followed by no pause")
	began := time.Now()
	r.Breathe(t.Context(), target/4)
	require.GreaterOrEqual(t, time.Since(began), target/2, "two of them are followed by one as long as both")
	require.Zero(t, r.owed)

	r, _ = working(t.Context(), 0.2)
	began = time.Now()
	r.Breathe(t.Context(), target)
	require.GreaterOrEqual(t, time.Since(began), 4*target, "a fifth of the time is work")
	require.Zero(t, r.owed)

	r, _ = working(t.Context(), 1)
	r.Breathe(t.Context(), time.Hour)
	require.Zero(t, r.owed, "without a share for others nothing is owed")

	r, _ = working(t.Context(), 0.5)
	r.Target = 0
	r.Breathe(t.Context(), time.Hour)
	require.Zero(t, r.owed, "without a target nothing is owed")
}

func TestPausesAreBounded(t *testing.T) {
	t.Parallel()

	r, _ := working(t.Context(), 0.5)
	began := time.Now()
	r.Breathe(t.Context(), time.Hour)
	require.GreaterOrEqual(t, time.Since(began), longestPause)
	require.Less(t, time.Since(began), 20*longestPause)
}

func TestStopEndsAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := working(ctx, 0.5)
		cancel()
		began := time.Now()
		r.Breathe(t.Context(), time.Hour)
		require.Zero(t, time.Since(began))
	})
}

// A pause does not outlast its run.
func TestEndOfTimeEndsAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := working(t.Context(), 0.5)
		r.Until = time.Now().Add(target)
		began := time.Now()
		r.Breathe(t.Context(), time.Hour)
		require.Equal(t, target, time.Since(began))
	})
}

func TestRunAwaitsWhileItIsAskedTo(t *testing.T) {
	t.Parallel()

	r, said := working(t.Context(), 1)
	r.Await(t.Context())
	require.Empty(t, *said, "nobody is asked")

	answers := []string{"behind", "less behind", ""}
	r.Hold = func(context.Context) string {
		answer := answers[0]
		answers = answers[1:]
		return answer
	}
	began := time.Now()
	r.Await(t.Context())
	require.GreaterOrEqual(t, time.Since(began), holdFirst+2*holdFirst, "twice as long between the questions each time")
	require.Equal(t, []string{"replica:behind", "replica:less behind", "replica:"}, *said)
	r.Await(t.Context())
	require.Len(t, *said, 3, "asked no more than once a second")
}

func TestStopEndsAHold(t *testing.T) {
	t.Parallel()

	ctx, stop := context.WithCancel(t.Context())
	r, said := working(ctx, 1)
	r.Hold = func(context.Context) string { stop(); return "behind" }
	r.Await(t.Context())
	require.Equal(t, []string{"replica:behind", ":"}, *said, "a run that has ended waits for nothing")
}

func TestWatchTellsWhomABatchWaitsFor(t *testing.T) {
	t.Parallel()

	r, said := working(t.Context(), 1)
	require.Empty(t, r.Watch(t.Context(), "main")())
	require.Empty(t, *said)

	asked := make(chan struct{})
	answers := []string{"pid 1", ""}
	about := ""
	r.Blocker = func(_ context.Context, database string) string {
		about = database
		if len(answers) == 0 {
			return "never"
		}
		answer := answers[0]
		if answers = answers[1:]; len(answers) == 0 {
			close(asked)
		}
		return answer
	}
	unwatch := r.Watch(t.Context(), "main")
	<-asked
	require.Equal(t, "pid 1", unwatch(), "the last answer that was one")
	require.Equal(t, "main", about)
	require.Equal(t, "lock:pid 1", (*said)[0])
	require.Equal(t, ":", (*said)[len(*said)-1], "nothing is waited for behind it")
	require.LessOrEqual(t, len(*said), 3)
}

// What is asked while the batch ends is no answer any more.
func TestWatchEndsWithItsBatch(t *testing.T) {
	t.Parallel()

	r, said := working(t.Context(), 1)
	asked := make(chan struct{})
	r.Blocker = func(ctx context.Context, _ string) string {
		close(asked)
		<-ctx.Done()
		return "pid 1"
	}
	unwatch := r.Watch(t.Context(), "")
	<-asked
	require.Empty(t, unwatch())
	require.Equal(t, []string{":"}, *said)
}

func TestShareDecidesInDutysStead(t *testing.T) {
	t.Parallel()

	r, _ := working(t.Context(), 0.5)
	var told Duty
	r.Shown = &told
	r.Breathe(t.Context(), target/8)
	require.Equal(t, Duty{50, "configured"}, told)
	share, locked := 0.25, false
	r.Share = func(_ context.Context, lately bool) (float64, Duty) {
		locked = lately
		return share, Duty{int(100 * share), "others"}
	}
	require.Equal(t, target, r.Shortened(target), "a fixed duty does not change the target")
	r.owed = 0
	r.Breathe(t.Context(), target/8)
	require.False(t, locked)
	require.Equal(t, 3*target/8, r.owed)
	require.Equal(t, Duty{25, "others"}, told)
	require.Equal(t, target/4, r.Shortened(target), "statements become shorter by the same factor")
	share = 1
	r.Locked()
	r.Breathe(t.Context(), time.Hour)
	require.True(t, locked)
	require.Zero(t, r.owed, "alone nothing is owed any more")
}

// Nothing that is locked waits for longer than 15 s, and for no longer than the
// transaction that was seen in the way lasts.
func TestBlockedWorkComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b Blocked
		for _, pause := range []time.Duration{
			time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second,
			15 * time.Second,
		} {
			b.Again("row locked by pid 7", "3/4")
			b.Again("row locked by pid 8", "5/6") // A turn that meets two locks has failed once.
			<-time.After(pause - 1)
			require.True(t, b.Waits())
			require.Equal(t, "row locked by pid 7", b.Reason)
			<-time.After(1)
			require.False(t, b.Waits())
		}

		b.Again("row locked by pid 7", "3/4")
		for _, over := range []bool{false, true} {
			require.NoError(t, b.check(t.Context(), func(_ context.Context, transaction string) (bool, error) {
				require.Equal(t, "3/4", transaction)
				return over, nil
			}))
			require.Equal(t, !over, b.Waits())
			<-time.After(checkEvery)
		}
	})
}
