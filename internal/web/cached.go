package web

import (
	"context"
	"sync"
	"time"
)

// Cached caches one value for concurrent readers, so that many requests cause one query.
type Cached[T any] struct {
	// Read returns a new value. It is never called concurrently.
	Read func(ctx context.Context) T
	// Timeout limits Read. Keep is the time for which its value is cached.
	Timeout time.Duration
	Keep    time.Duration

	mu    sync.Mutex
	last  T
	until time.Time
}

// Forget makes the next Get read a new value.
func (v *Cached[T]) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until = time.Time{}
}

// Get returns the cached value, or calls Read for a new one. Concurrent callers wait for
// the same call of Read. That call continues if the ctx of one caller ends.
func (v *Cached[T]) Get(ctx context.Context) T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Now().Before(v.until) {
		return v.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.Timeout)
	defer cancel()
	v.last = v.Read(ctx)
	v.until = time.Now().Add(v.Keep)
	return v.last
}

// mostKept is the maximum number of values of a CachedByKey. A further key drops all
// earlier values.
const mostKept = 64

// CachedByKey holds one Cached value per key.
type CachedByKey[K comparable, T any] struct {
	Read    func(ctx context.Context, key K) T
	Timeout time.Duration
	Keep    time.Duration

	mu    sync.Mutex
	known map[K]*Cached[T]
}

// Get returns the value for a key, like Cached.Get.
func (v *CachedByKey[K, T]) Get(ctx context.Context, key K) T {
	v.mu.Lock()
	one := v.known[key]
	if one == nil {
		if v.known == nil || len(v.known) >= mostKept {
			v.known = map[K]*Cached[T]{}
		}
		one = &Cached[T]{
			Read: func(ctx context.Context) T { return v.Read(ctx, key) }, Timeout: v.Timeout,
			Keep: v.Keep,
		}
		v.known[key] = one
	}
	v.mu.Unlock()
	return one.Get(ctx)
}

// Forget makes the next Get of each key read a new value.
func (v *CachedByKey[K, T]) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = nil
}
