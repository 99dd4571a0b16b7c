package web_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/web"
)

func TestCachedValueIsShared(t *testing.T) {
	t.Parallel()
	reads := 0
	began, end := make(chan struct{}), make(chan struct{})
	value := &web.Cached[int]{Timeout: time.Minute, Keep: time.Hour, Read: func(context.Context) int {
		reads++
		// close panics if Read is called a second time.
		close(began)
		<-end
		return reads
	}}
	var readers sync.WaitGroup
	for range 10 {
		readers.Go(func() { require.Equal(t, 1, value.Get(t.Context())) })
	}
	<-began
	close(end)
	readers.Wait()
}

// CachedByKey caches one value per key, and a limited number of values.
func TestCachedByKey(t *testing.T) {
	t.Parallel()
	reads := map[int]int{}
	values := &web.CachedByKey[int, int]{
		Timeout: time.Minute, Keep: time.Hour,
		Read: func(_ context.Context, key int) int { reads[key]++; return -key },
	}
	for range 2 {
		require.Equal(t, -1, values.Get(t.Context(), 1))
		require.Equal(t, -2, values.Get(t.Context(), 2))
	}
	require.Equal(t, map[int]int{1: 1, 2: 1}, reads)
	values.Forget()
	values.Get(t.Context(), 1)
	require.Equal(t, 2, reads[1])
	for key := range 200 {
		values.Get(t.Context(), key)
	}
	values.Get(t.Context(), 1)
	require.Equal(t, 3, reads[1])
}

func TestCachedValueExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		value := &web.Cached[int]{Timeout: 2 * time.Second, Keep: 5 * time.Second, Read: func(ctx context.Context) int {
			reads++
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, 2*time.Second, time.Until(deadline))
			pause(time.Second)
			return reads
		}}
		require.Equal(t, 1, value.Get(t.Context()))
		pause(4 * time.Second)
		require.Equal(t, 1, value.Get(t.Context()), "the time of caching counts from the end of the read")
		pause(time.Second)
		require.Equal(t, 2, value.Get(t.Context()))
	})
}

// pause waits until the fake clock of the synctest bubble has advanced by d.
func pause(d time.Duration) { <-time.After(d) }

func TestCanceledCallerDoesNotCancelRead(t *testing.T) {
	t.Parallel()
	value := &web.Cached[error]{
		Timeout: time.Minute, Keep: time.Minute,
		Read: func(ctx context.Context) error { return ctx.Err() },
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, value.Get(canceled))
}
