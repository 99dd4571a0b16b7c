package web

import (
	"context"
	"sync"
	"time"
)

// Cached is an answer that is kept for a while and shared by concurrent readers, so that
// they cannot load a database.
type Cached[T any] struct {
	// Read gives a new answer. It is never called twice at a time.
	Read func(ctx context.Context) T
	// Timeout bounds Read, Keep is for how long its answer is good.
	Timeout time.Duration
	Keep    time.Duration

	mu    sync.Mutex
	last  T
	until time.Time // monotonic
}

// Forget has the next one who asks get a new answer: something is known to have changed.
func (v *Cached[T]) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until = time.Time{}
}

// Get returns the kept answer, or else a new one, for which those who come meanwhile wait
// as well. An asker that goes away does not break it off for the others.
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

// mostKept bounds the answers of a CachedByKey.
const mostKept = 64

// CachedByKey are answers to several questions.
type CachedByKey[K comparable, T any] struct {
	Read    func(ctx context.Context, key K) T
	Timeout time.Duration
	Keep    time.Duration

	mu    sync.Mutex
	known map[K]*Cached[T]
}

// Get returns the answer for a key as that of a Cached.
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

// Forget has all answers read anew.
func (v *CachedByKey[K, T]) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = nil
}
