// Package cache shares one answer among all who ask at about the same time, so that no reader can ask a database
// more often than is good for it.
package cache

import (
	"context"
	"sync"
	"time"
)

// Value is an answer that is kept for a while.
type Value[T any] struct {
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
func (v *Value[T]) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until = time.Time{}
}

// Get returns the kept answer, or else a new one, for which those who come meanwhile wait as well. An asker that
// goes away does not break it off for the others.
func (v *Value[T]) Get(ctx context.Context) T {
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

// mostKept bounds the answers of a Values.
const mostKept = 64

// Values are answers to several questions.
type Values[K comparable, T any] struct {
	Read    func(ctx context.Context, key K) T
	Timeout time.Duration
	Keep    time.Duration

	mu    sync.Mutex
	known map[K]*Value[T]
}

// Get returns the answer for a key as that of a Value.
func (v *Values[K, T]) Get(ctx context.Context, key K) T {
	v.mu.Lock()
	one := v.known[key]
	if one == nil {
		if v.known == nil || len(v.known) >= mostKept {
			v.known = map[K]*Value[T]{}
		}
		one = &Value[T]{Read: func(ctx context.Context) T { return v.Read(ctx, key) }, Timeout: v.Timeout, Keep: v.Keep}
		v.known[key] = one
	}
	v.mu.Unlock()
	return one.Get(ctx)
}

// Forget has all answers read anew.
func (v *Values[K, T]) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = nil
}
