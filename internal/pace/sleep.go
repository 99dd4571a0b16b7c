package pace

import (
	"context"
	"time"
)

// Sleep sleeps for d, and returns the context's error if that ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // the caller's own
	}
}
