package pace_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

// newItems returns two pages of two items each. The functions append processed items to
// done and failed items to deferred. The function before is called before each item. If
// fail is not nil, item 2 fails with this error.
func newItems(done, deferred *[]int, fail error, before func(item int)) pace.Items[int] {
	left := [][]int{{1, 2}, {3, 4}}
	return pace.Items[int]{
		Page: func(context.Context) (page []int, more bool, _ error) {
			page, left = left[0], left[1:]
			return page, len(left) > 0, nil
		},
		One: func(_ context.Context, item int) error {
			before(item)
			if item == 2 && fail != nil {
				return fail
			}
			*done = append(*done, item)
			return nil
		},
		Failed: func(_ context.Context, item int, f batch.Fault, _ error) error {
			*deferred = append(*deferred, item)
			if f.SQLState == "23514" {
				return errors.New("too many failures")
			}
			return nil
		},
		Doing: func(item int) string { return fmt.Sprintf("item %d", item) },
	}
}

func TestEachDefersFailedItemsAndContinues(t *testing.T) {
	t.Parallel()
	type example struct {
		fail           error
		done, deferred []int
		message        string
	}
	pgtest.Each(t, map[string]example{
		"no error":                  {nil, []int{1, 2, 3, 4}, nil, ""},
		"row":                       {&pgconn.PgError{Code: "23505"}, []int{1, 3, 4}, []int{2}, ""},
		"timeout":                   {&pgconn.PgError{Code: "57014"}, []int{1, 3, 4}, []int{2}, ""},
		"failure that ends the run": {&pgconn.PgError{Code: "23514"}, []int{1}, []int{2}, "item 2: too many failures"},
		"statement": {
			&pgconn.PgError{Code: "42P01", Message: "no table"},
			[]int{1},
			nil,
			"item 2: : no table (SQLSTATE 42P01)",
		},
		"connection": {errors.New("broken pipe"), []int{1}, nil, "item 2: broken pipe"},
	}, func(t *testing.T, _ string, c example) {
		var done, deferred []int
		overLimit, interrupted, err := newItems(&done, &deferred, c.fail, func(int) {}).Each(t.Context(),
			&pace.Frame{Stop: t.Context()})
		require.False(t, overLimit || interrupted)
		if c.message == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, c.message)
			require.Equal(t, c.message == "item 2: too many failures", !errors.Is(err, c.fail))
		}
		require.Equal(t, c.done, done)
		require.Equal(t, c.deferred, deferred)
	})
}

func TestEachFinishesTheCurrentItem(t *testing.T) {
	t.Parallel()
	var done, deferred []int
	stop, cancel := context.WithCancel(t.Context())
	overLimit, interrupted, err := newItems(&done, &deferred, nil, func(item int) {
		if item == 3 {
			cancel()
		}
	}).Each(t.Context(), &pace.Frame{Stop: stop})
	require.NoError(t, err)
	require.True(t, interrupted)
	require.False(t, overLimit)
	require.Equal(t, []int{1, 2, 3}, done)

	done = nil
	frame := &pace.Frame{Stop: t.Context()}
	overLimit, interrupted, err = newItems(&done, &deferred, nil, func(item int) {
		if item == 2 {
			frame.Until = time.Now()
		}
	}).Each(t.Context(), frame)
	require.NoError(t, err)
	require.True(t, overLimit)
	require.False(t, interrupted)
	require.Equal(t, []int{1, 2}, done)
}

func TestTimeoutsEndBeforeTheLease(t *testing.T) {
	t.Parallel()

	all := batch.Limits{StatementTimeout: time.Minute, LockTimeout: time.Second}
	require.Equal(t, all, pace.Within(all, time.Time{}), "a lease that does not expire changes nothing")
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
