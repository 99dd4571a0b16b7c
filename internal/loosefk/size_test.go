package loosefk

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/definitions"
)

const target = 20 * time.Millisecond

func TestSizeLearns(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		before float64
		rows   int64
		next   float64
		took   time.Duration
		want   float64
	}{
		"doubles while it takes less than half":         {1000, 1000, 0, target/2 - 1, 2000},
		"grows by a tenth from half of the target on":   {1000, 1000, 0, target / 2, 1100},
		"grows by a tenth up to the target":             {1000, 1000, 0, target, 1100},
		"shrinks in proportion":                         {1000, 1000, 0, 2 * target, 500},
		"shrinks in proportion to the rows it had":      {1000, 600, 0, 2 * target, 300},
		"half full is full enough":                      {1000, 500, 0, time.Millisecond, 2000},
		"grows not after fewer rows":                    {1000, 499, 0, time.Millisecond, 1000},
		"one parent more would have been too many":      {210, 100, 100, time.Millisecond, 420},
		"one parent more would have fitted":             {1000, 100, 100, time.Millisecond, 1000},
		"grows not after none":                          {1000, 0, 0, time.Millisecond, 1000},
		"more rows than expected in too long a time":    {1000, 10_000, 0, 2 * target, 1000},
		"more rows than expected in a good time":        {1000, 10_000, 0, target, 1100},
		"is never below the least":                      {smallestBatch, smallestBatch, 0, 100 * target, smallestBatch},
		"one slow row among few makes it not less":      {150, 1, 0, 100 * target, smallestBatch},
		"is never above the most":                       {largestBatch - 1, largestBatch, 0, time.Millisecond, largestBatch},
		"is never above the most, with a tenth as well": {largestBatch - 1, largestBatch, 0, target, largestBatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := size{rows: test.before}
			s.learn(test.rows, test.next, test.took, target)
			require.InDelta(t, test.want, s.rows, 0.001)
		})
	}
}

func TestSizeConverges(t *testing.T) {
	t.Parallel()

	for name, perRow := range map[string]time.Duration{
		"fast": 2 * time.Microsecond, "usual": 20 * time.Microsecond, "slow": 150 * time.Microsecond,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s size
			for range 40 {
				rows := s.of(&Reference{})
				s.learn(int64(rows), 0, time.Duration(rows)*perRow, target)
			}
			require.InEpsilon(t, float64(target/perRow), s.rows, 0.15)
		})
	}
}

func TestSizeAfterATimeout(t *testing.T) {
	t.Parallel()

	s := size{rows: 3000}
	s.timedOut()
	require.InDelta(t, 1000, s.rows, 0.001)
	for range 10 {
		s.timedOut()
	}
	require.InDelta(t, smallestBatch, s.rows, 0.001)
}

func TestSizeBeginsSmallAndKeepsToDeleteLimit(t *testing.T) {
	t.Parallel()

	free := &Reference{Definition: definitions.Definition{OnDelete: definitions.Delete}}
	limited := &Reference{Definition: definitions.Definition{OnDelete: definitions.Delete, DeleteLimit: 300}}
	updated := &Reference{Definition: definitions.Definition{OnDelete: definitions.Nullify, DeleteLimit: 300}}
	for _, reference := range []*Reference{free, limited, updated} {
		var s size
		require.Equal(t, firstBatch, s.of(reference))
	}
	s := size{rows: 1000}
	require.Equal(t, 1000, s.of(free))
	require.Equal(t, 300, s.of(limited))
	require.Equal(t, 1000, s.of(updated), "a limit of deletes is none of updates")
	require.InDelta(t, 1000, s.rows, 0.001, "asking changes nothing")
}

// What is learned of one way to take rows says nothing about the other one.
func TestFormsHaveSizesOfTheirOwn(t *testing.T) {
	t.Parallel()

	var r Reference
	r.size(direct).rows = 1
	for _, how := range []pass{skipping, waiting, piecewise} {
		require.NotSame(t, r.size(direct), r.size(how))
		require.Same(t, r.size(skipping), r.size(how))
	}
}

// steered is a run of the pace adaptive that has no database.
func steered(ctx context.Context, duty float64) *run {
	return &run{
		engine: &Engine{
			Adaptive: Adaptive{Target: target, Duty: duty},
			Session:  &batch.Session{Limits: batch.Limits{StatementTimeout: time.Minute, LockTimeout: 2 * time.Minute, Durable: true}},
		},
		stop: ctx, breaker: newBreaker(), budget: budget{until: time.Now().Add(time.Hour)},
	}
}

func TestLimitsOfAStatement(t *testing.T) {
	t.Parallel()

	r := steered(t.Context(), 1)
	sound, slow := task{reference: &Reference{}}, task{reference: &Reference{}}
	r.breaker.rows[slow.place()] = fewestRows
	full := r.engine.Session.Limits
	for _, how := range []pass{direct, piecewise, skipping} {
		short := r.limits(sound, how)
		require.Equal(t, leash*target, short.StatementTimeout)
		require.Less(t, short.LockTimeout, short.StatementTimeout, "a statement timeout of the same length comes first and hides what it waited for")
		require.GreaterOrEqual(t, short.LockTimeout, target)
		require.True(t, short.Durable)
	}
	require.Equal(t, full, r.limits(sound, waiting))
	require.Equal(t, full, r.limits(slow, waiting))
	require.Equal(t, full, r.limits(slow, piecewise), "it cannot be made any smaller")
	require.Equal(t, full, r.limits(slow, skipping), "it cannot be made any smaller")
	require.Equal(t, leash*target, r.limits(slow, direct).StatementTimeout, "pieces of it are smaller")

	r.engine.Session.Limits = batch.Limits{StatementTimeout: time.Millisecond, LockTimeout: time.Millisecond}
	require.Equal(t, r.engine.Session.Limits, r.limits(sound, direct), "the settings bind as well")
	r.engine.Session.Limits, r.engine.Adaptive = full, Adaptive{}
	require.Equal(t, full, r.limits(sound, skipping), "other paces have no leash")
}

func TestPausesFollowOnceEnoughIsOwed(t *testing.T) {
	t.Parallel()

	r := steered(t.Context(), 0.5)
	r.breathe(t.Context(), target/4)
	require.Equal(t, target/4, r.owed, "a single small statement is followed by no pause")
	began := time.Now()
	r.breathe(t.Context(), target/4)
	require.GreaterOrEqual(t, time.Since(began), target/2, "two of them are followed by one as long as both")
	require.Zero(t, r.owed)

	r = steered(t.Context(), 0.2)
	began = time.Now()
	r.breathe(t.Context(), target)
	require.GreaterOrEqual(t, time.Since(began), 4*target, "a fifth of the time is work")
	require.Zero(t, r.owed)

	r = steered(t.Context(), 1)
	r.breathe(t.Context(), time.Hour)
	require.Zero(t, r.owed, "without a share for others nothing is owed")
}

func TestPausesAreBounded(t *testing.T) {
	t.Parallel()

	r := steered(t.Context(), 0.5)
	began := time.Now()
	r.breathe(t.Context(), time.Hour)
	require.GreaterOrEqual(t, time.Since(began), longestPause)
	require.Less(t, time.Since(began), 20*longestPause)
}

func TestStopEndsAPause(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	r := steered(ctx, 0.5)
	cancel()
	began := time.Now()
	r.breathe(t.Context(), time.Hour)
	require.Less(t, time.Since(began), longestPause/2)
}

// A pause does not outlast its run.
func TestEndOfTimeEndsAPause(t *testing.T) {
	t.Parallel()

	r := steered(t.Context(), 0.5)
	r.budget.until = time.Now().Add(target)
	began := time.Now()
	r.breathe(t.Context(), time.Hour)
	require.Less(t, time.Since(began), longestPause/2)
}

func TestSteeringLeavesOutWhatWaited(t *testing.T) {
	t.Parallel()

	r := steered(t.Context(), 1)
	task := task{reference: &Reference{}}
	task.reference.limitedSize.rows, task.reference.directSize.rows = 1000, 1000
	r.steer(t.Context(), task, waiting, 1000, time.Hour)
	require.InDelta(t, 1000, task.reference.limitedSize.rows, 0.001)
	r.steer(t.Context(), task, piecewise, 1000, 2*target)
	require.InDelta(t, 500, task.reference.limitedSize.rows, 0.001)
	require.InDelta(t, 1000, task.reference.directSize.rows, 0.001)
	r.engine.Adaptive = Adaptive{}
	r.steer(t.Context(), task, direct, 1000, 2*target)
	require.InDelta(t, 1000, task.reference.directSize.rows, 0.001, "other paces steer nothing")
}
