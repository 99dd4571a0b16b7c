// Package sleep has a sleep that ends with its context.
package sleep

import (
	"context"
	"time"
)

// For sleeps for d, and returns the context's error if that ends before.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller's own
	}
}
