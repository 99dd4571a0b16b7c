package jobrun

import (
	"context"
	"log/slog"
	"time"

	"sexton/internal/lease"
)

// heldEvery is the minimum time between two log lines about the same holder of a lease. A
// worker may try many times a second, and each skipped pass is in the history.
const heldEvery = time.Minute

// logHeld logs that another process has the lease, once per lease, holder and minute. If
// the holder is an undo, that is not an error.
func (r *Runner) logHeld(ctx context.Context, spec Spec, runID int64, held *lease.HeldError) {
	log := r.limitedLog(spec, runID)
	if held.ByUndo() {
		log.InfoContext(ctx, "waiting_for_undo", "key", held.Key, "holder", held.Holder, "expires_at", held.ExpiresAt)
		return
	}
	log.ErrorContext(ctx, "failed to obtain lock", "error", "FailedToObtainLockError", "key", held.Key, "holder",
		held.Holder, "expires_at", held.ExpiresAt)
}

// logOtherGeneration logs that other definitions are installed, once per lease and
// minute.
func (r *Runner) logOtherGeneration(ctx context.Context, spec Spec, runID int64, outdated *lease.GenerationError) {
	r.limitedLog(spec, runID).ErrorContext(ctx, "other_definitions_installed", "key", outdated.Key,
		"error", outdated.Error())
}

// limitedLog returns the log of a run, limited to one line per message, lease, holder and
// minute.
func (r *Runner) limitedLog(spec Spec, runID int64) *slog.Logger {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heldLog == nil {
		r.heldLog = NewDedup(r.Logger.Handler(), heldEvery, func(record slog.Record) string {
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
	return slog.New(r.heldLog).With("kind", spec.Kind, "database", spec.Database, "run_id", runID)
}
