package pace_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

const (
	target   = 20 * time.Millisecond
	smallest = 100.0
	largest  = 50_000.0
)

var steer = pace.Steer{Target: target, Smallest: smallest, Largest: largest}

func TestSizeLearns(t *testing.T) {
	t.Parallel()

	type example struct {
		before float64
		rows   int64
		next   float64
		took   time.Duration
		want   float64
	}
	pgtest.Each(t, map[string]example{
		"doubles while it takes less than half":         {1000, 1000, 0, target/2 - 1, 2000},
		"grows by a tenth from half of the target on":   {1000, 1000, 0, target / 2, 1100},
		"grows by a tenth up to the target":             {1000, 1000, 0, target, 1100},
		"shrinks in proportion":                         {1000, 1000, 0, 2 * target, 500},
		"shrinks in proportion to the rows it had":      {1000, 600, 0, 2 * target, 300},
		"halves where it had far fewer":                 {1000, 100, 0, 2 * target, 500},
		"grows faster while it takes much less":         {1000, 1000, 0, target / 8, 4000},
		"grows eightfold at most":                       {1000, 1000, 0, time.Nanosecond, 8000},
		"half full is full enough":                      {1000, 500, 0, target/2 - 1, 2000},
		"grows not after fewer rows":                    {1000, 499, 0, time.Millisecond, 1000},
		"one parent more would have been too many":      {210, 100, 100, target/2 - 1, 420},
		"one parent more would have fitted":             {1000, 100, 100, time.Millisecond, 1000},
		"grows not after none":                          {1000, 0, 0, time.Millisecond, 1000},
		"more rows than expected in too long a time":    {1000, 10_000, 0, 2 * target, 1000},
		"more rows than expected in a good time":        {1000, 10_000, 0, target, 1100},
		"is never below the least":                      {smallest, int64(smallest), 0, 100 * target, smallest},
		"one slow row among few makes it not less":      {150, 1, 0, 100 * target, smallest},
		"is never above the most":                       {largest - 1, int64(largest), 0, time.Millisecond, largest},
		"is never above the most, with a tenth as well": {largest - 1, int64(largest), 0, target, largest},
	}, func(t *testing.T, _ string, test example) {
		require.InDelta(t, test.want, steer.Learn(test.before, test.rows, test.next, test.took), 0.001)
	})
}

func TestSizeConverges(t *testing.T) {
	t.Parallel()

	pgtest.Each(t, map[string]time.Duration{
		"fast": 2 * time.Microsecond, "usual": 20 * time.Microsecond, "slow": 150 * time.Microsecond,
	}, func(t *testing.T, _ string, perRow time.Duration) {
		size := 2 * smallest
		for range 40 {
			size = steer.Learn(size, int64(size), 0, time.Duration(size)*perRow)
		}
		require.InEpsilon(t, float64(target/perRow), size, 0.15)
	})
}

func TestSizeAfterATimeout(t *testing.T) {
	t.Parallel()

	size := steer.TimedOut(3000)
	require.InDelta(t, 1000, size, 0.001)
	for range 10 {
		size = steer.TimedOut(size)
	}
	require.InDelta(t, smallest, size, 0.001)
}

func TestLimitsOfAStatement(t *testing.T) {
	t.Parallel()

	short := steer.Limits(batch.Limits{StatementTimeout: time.Minute, LockTimeout: 2 * time.Minute, Durable: true})
	require.Equal(t, pace.Leash*target, short.StatementTimeout)
	statement, wait := short.Timeouts()
	require.Less(t, wait, statement, "a statement timeout of the same length comes first and hides what it waited for")
	require.GreaterOrEqual(t, wait, target.Milliseconds())
	require.True(t, short.Durable)

	settings := batch.Limits{StatementTimeout: time.Millisecond, LockTimeout: time.Millisecond}
	require.Equal(t, settings, steer.Limits(settings), "the settings bind as well")
}

func TestTimeoutsEndBeforeTheLease(t *testing.T) {
	t.Parallel()

	all := batch.Limits{StatementTimeout: time.Minute, LockTimeout: time.Second}
	require.Equal(t, all, pace.Within(all, time.Time{}), "without a lease that ends")
	require.Equal(t, all, pace.Within(all, time.Now().Add(time.Hour)))

	cut := pace.Within(all, time.Now().Add(10*time.Second))
	require.Less(t, cut.StatementTimeout, 10*time.Second)
	require.Equal(t, time.Second, cut.LockTimeout)

	late := pace.Within(all, time.Now().Add(-time.Second))
	require.Positive(t, late.StatementTimeout, "0 would be no timeout at all")
	require.Less(t, late.StatementTimeout, 100*time.Millisecond)
	statement, wait := late.Timeouts()
	require.Positive(t, wait)
	require.Less(t, wait, statement)
}
