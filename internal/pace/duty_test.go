package pace

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// watched are neighbours with a clock of their own.
type watched struct {
	Neighbours

	now time.Time
	n   int
}

func watching() *watched { return &watched{now: time.Now()} }

// look takes so many looks, 50 ms apart, each of which sees the transactions that last
// and young others.
func (w *watched) look(looks, young int, lasting ...string) {
	for range looks {
		w.now = w.now.Add(50 * time.Millisecond)
		seen := lasting
		for range young {
			w.n++
			seen = append(seen, "9/"+strconv.Itoa(w.n))
		}
		w.Saw(w.now, seen)
	}
}

func (w *watched) told() Duty {
	_, told := w.Share(false)
	return told
}

func TestAloneARunWorksAllOfItsTime(t *testing.T) {
	t.Parallel()
	w := watching()
	for range 100 {
		w.look(1, 0)
		require.Equal(t, Duty{100, "alone"}, w.told())
	}
	w.look(1, 1)
	require.Equal(t, 85, w.told().Percent)
	w.look(4, 0)
	require.Greater(t, w.told().Percent, 90, "one transaction in five looks")
}

func TestOthersTakeTheirShareAtOnceAndGiveItBackWithinASecond(t *testing.T) {
	t.Parallel()
	w := watching()
	w.look(1, 0)
	w.look(5, 3)
	share, told := w.Share(false)
	require.InDelta(t, leastShare, share, 0.01, "a quarter of a second later")
	require.Equal(t, 50, told.Percent)
	require.Regexp(t, `^others: [12]\.\d transactions in flight$`, told.Why)
	w.look(100, 8)
	require.Equal(t, Duty{50, "others: 8.0 transactions in flight"}, w.told(), "never less")
	w.look(15, 0)
	require.Equal(t, Duty{100, "alone"}, w.told())
}

func TestTransactionsOfUnknownOrGreatAgeDoNotCount(t *testing.T) {
	t.Parallel()
	w := watching()
	for range 3 {
		w.look(1, 0, "1/1", "2/1")
		require.Equal(t, Duty{100, "alone"}, w.told(), "it may be there for hours")
		w.look(30, 0, "1/1", "2/1")
		require.Equal(t, Duty{100, "alone"}, w.told())
		w.now = w.now.Add(time.Minute)
	}
	w.look(1, 0)
	w.look(19, 0, "3/1")
	require.Equal(t, 50, w.told().Percent)
	w.look(20, 0, "3/1")
	require.Equal(t, Duty{100, "alone"}, w.told(), "a second old it counts no more")
}

func TestALockOfOthersIsASignOfThem(t *testing.T) {
	t.Parallel()
	w := watching()
	w.look(1, 0)
	share, told := w.Share(true)
	require.InDelta(t, leastShare, share, 0)
	require.Equal(t, Duty{50, "lock wait"}, told)
}

func TestWithoutLooksHalfOfTheTimeIsTaken(t *testing.T) {
	t.Parallel()
	w := watching()
	w.Blind(w.now, "permission denied")
	require.Equal(t, Duty{50, "cannot tell if others are there: permission denied"}, w.told())
	w.now = w.now.Add(20 * time.Second)
	w.look(1, 0)
	require.Equal(t, Duty{100, "alone"}, w.told(), "once it may look")
}
