package pace

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clocked is OtherSessions with a simulated clock.
type clocked struct {
	OtherSessions

	now time.Time
	n   int
}

func newClocked() *clocked { return &clocked{now: time.Now()} }

// record records a number of queries that are 50 ms apart. Each query finds the
// transactions in lasting and a number of new, young ones.
func (w *clocked) record(queries, young int, lasting ...string) {
	for range queries {
		w.now = w.now.Add(50 * time.Millisecond)
		seen := lasting
		for range young {
			w.n++
			seen = append(seen, "9/"+strconv.Itoa(w.n))
		}
		w.Record(w.now, seen)
	}
}

func (w *clocked) duty() Duty {
	_, duty := w.Share(false)
	return duty
}

func TestARunWithoutOtherSessionsWorksAllOfItsTime(t *testing.T) {
	t.Parallel()
	w := newClocked()
	for range 100 {
		w.record(1, 0)
		require.Equal(t, idle, w.duty())
	}
	w.record(1, 1)
	require.Equal(t, 85, w.duty().Percent)
	w.record(4, 0)
	require.Greater(t, w.duty().Percent, 90, "one transaction in five queries")
}

func TestOtherSessionsReduceTheShareUntilTheyEnd(t *testing.T) {
	t.Parallel()
	w := newClocked()
	w.record(1, 0)
	w.record(5, 3)
	share, duty := w.Share(false)
	require.InDelta(t, leastShare, share, 0.01, "a quarter of a second after the first transaction")
	require.Equal(t, 50, duty.Percent)
	require.Regexp(t, `^other sessions: [12]\.\d transactions$`, duty.Why)
	w.record(100, 8)
	require.Equal(t, Duty{50, "other sessions: 8.0 transactions"}, w.duty(), "the share is never smaller")
	w.record(15, 0)
	require.Equal(t, idle, w.duty())
}

func TestTransactionsOfUnknownOrGreatAgeDoNotCount(t *testing.T) {
	t.Parallel()
	w := newClocked()
	for range 3 {
		w.record(1, 0, "1/1", "2/1")
		require.Equal(t, idle, w.duty(), "the transactions may have been open for hours")
		w.record(30, 0, "1/1", "2/1")
		require.Equal(t, idle, w.duty())
		w.now = w.now.Add(time.Minute)
	}
	w.record(1, 0)
	w.record(19, 0, "3/1")
	require.Equal(t, 50, w.duty().Percent)
	w.record(20, 0, "3/1")
	require.Equal(t, idle, w.duty(), "a transaction older than a second does not count")
}

func TestALockReducesTheShare(t *testing.T) {
	t.Parallel()
	w := newClocked()
	w.record(1, 0)
	share, duty := w.Share(true)
	require.InDelta(t, leastShare, share, 0)
	require.Equal(t, Duty{50, "lock wait"}, duty)
}

func TestAFailedQueryReducesTheShare(t *testing.T) {
	t.Parallel()
	w := newClocked()
	w.SetUnknown(w.now, "permission denied")
	require.Equal(t, Duty{50, "other sessions are unknown: permission denied"}, w.duty())
	w.now = w.now.Add(20 * time.Second)
	w.record(1, 0)
	require.Equal(t, idle, w.duty(), "the next query ends the reduction")
}
