package jobrun

import (
	"context"
	"log/slog"
	"time"

	"sexton/internal/lease"
)

// heldEvery is how often a process says that one holder has one lease. A worker looks for work many times a second, and each pass that
// is skipped is in the history.
const heldEvery = time.Minute

type holding struct{ key, holder string }

// heldLine is the last line about a holding, and the number of those left out since.
type heldLine struct {
	written time.Time
	leftOut int
}

// logHeld writes one line per lease, holder and minute. An undo holds it on purpose, and that is no error.
func (r *Runner) logHeld(ctx context.Context, log *slog.Logger, held *lease.HeldError) {
	log = r.seldom(log, holding{held.Key, held.Holder})
	switch {
	case log == nil:
	case held.ByUndo():
		log.InfoContext(ctx, "waits for an undo", "key", held.Key, "holder", held.Holder, "expires_at", held.ExpiresAt)
	default:
		log.ErrorContext(ctx, "failed to obtain lock", "error", "FailedToObtainLockError", "key", held.Key, "holder", held.Holder, "expires_at", held.ExpiresAt)
	}
}

// logOutdated writes one line per lease and minute.
func (r *Runner) logOutdated(ctx context.Context, log *slog.Logger, outdated *lease.GenerationError) {
	if log := r.seldom(log, holding{key: outdated.Key}); log != nil {
		log.ErrorContext(ctx, "other definitions are installed: the job waits", "key", outdated.Key, "error", outdated.Error())
	}
}

// seldom is nil where no line is due.
func (r *Runner) seldom(log *slog.Logger, h holding) *slog.Logger {
	leftOut, write := r.countHeld(h, time.Now())
	switch {
	case !write:
		return nil
	case leftOut > 0:
		return log.With(LeftOut, leftOut)
	}
	return log
}

// countHeld reports whether a line is due, and how many were left out since the one before. Holdings of two minutes ago are forgotten.
func (r *Runner) countHeld(h holding, now time.Time) (leftOut int, write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, line := range r.held {
		if now.Sub(line.written) >= 2*heldEvery {
			delete(r.held, other)
		}
	}
	line, known := r.held[h]
	if known && now.Sub(line.written) < heldEvery {
		line.leftOut++
		return 0, false
	}
	if known {
		leftOut = line.leftOut
	}
	if r.held == nil {
		r.held = map[holding]*heldLine{}
	}
	r.held[h] = &heldLine{written: now}
	return leftOut, true
}
