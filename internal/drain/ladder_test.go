package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/drain"
	"sexton/internal/pace"
)

// What was lost to others' changes at one size is lost again if the next statement that goes through doubles the size at once.
func TestSizeGrowsSlowlyWhereStatementsWereLost(t *testing.T) {
	t.Parallel()

	by := pace.Steer{Target: 20 * time.Millisecond, Smallest: 100, Largest: 50_000}
	var size drain.Size
	require.Equal(t, 1000, size.Rows(1000))
	quick := func() int {
		size.Learn(by, int64(size.Rows(0)), 0, time.Millisecond)
		return size.Rows(0)
	}
	size.Lost(by)
	require.Equal(t, 500, size.Rows(0))
	require.Equal(t, 550, quick())
	size.Lost(by)
	require.Equal(t, 275, size.Rows(0), "another one is lost: half of it again")
	var sizes []int
	for size.Rows(0) <= 550 {
		sizes = append(sizes, quick())
	}
	require.Equal(t, []int{302, 332, 366, 402, 442, 487, 535, 589}, sizes)
	require.Equal(t, 4715, quick(), "as before, once it has gone through where it was lost")
	for range 20 {
		size.Lost(by)
	}
	require.Equal(t, 100, size.Rows(0))
}
