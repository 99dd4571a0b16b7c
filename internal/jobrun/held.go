package jobrun

import (
	"context"
	"log/slog"
	"time"

	"sexton/internal/lease"
)

// heldEvery is how often a process logs that one holder has one lease. A worker looks for
// work many times a second, and each pass that is skipped is in the history.
const heldEvery = time.Minute

// logHeld logs that another process has the lease, once per lease, holder and minute. An
// undo holds it on purpose, and that is no error.
func (r *Runner) logHeld(ctx context.Context, spec Spec, runID int64, held *lease.HeldError) {
	log := r.seldom(spec, runID)
	if held.ByUndo() {
		log.InfoContext(ctx, "waits for an undo", "key", held.Key, "holder", held.Holder, "expires_at", held.ExpiresAt)
		return
	}
	log.ErrorContext(ctx, "failed to obtain lock", "error", "FailedToObtainLockError", "key", held.Key, "holder",
		held.Holder, "expires_at", held.ExpiresAt)
}

// logOutdated logs that other definitions are installed, once per lease and minute.
func (r *Runner) logOutdated(ctx context.Context, spec Spec, runID int64, outdated *lease.GenerationError) {
	r.seldom(spec, runID).ErrorContext(ctx, "other definitions are installed: the job waits", "key", outdated.Key,
		"error", outdated.Error())
}

// seldom returns the log of a run for lines of which one per lease, holder and minute is
// enough.
func (r *Runner) seldom(spec Spec, runID int64) *slog.Logger {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = NewDedup(r.Logger.Handler(), heldEvery, func(record slog.Record) string {
			group := record.Message
			record.Attrs(func(attr slog.Attr) bool {
				if attr.Key == "key" || attr.Key == "holder" {
					group += "\x00" + attr.Value.String()
				}
				return true
			})
			return group
		})
	}
	return slog.New(r.held).With("kind", spec.Kind, "database", spec.Database, "run_id", runID)
}
