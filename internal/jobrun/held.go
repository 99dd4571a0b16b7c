package jobrun

import (
	"context"
	"log/slog"
	"time"

	"sexton/internal/lease"
)

// heldEvery is the minimum time between two log lines about the same holder of a lease. A
// worker may try to acquire a lease many times a second, and the history records each
// skipped pass.
const heldEvery = time.Minute

// logHeld logs that another process holds the lease, at most once per lease, holder and
// minute. It logs an error, or an info line if the holder is an undo.
func (r *Runner) logHeld(ctx context.Context, spec Spec, runID int64, held *lease.HeldError) {
	log := r.limitedLog(spec, runID)
	if held.ByUndo() {
		log.InfoContext(ctx, "waiting_for_undo", "key", held.Key, "holder", held.Holder, "expires_at", held.ExpiresAt)
		return
	}
	log.ErrorContext(ctx, "failed to obtain lock", "error", "FailedToObtainLockError", "key", held.Key, "holder",
		held.Holder, "expires_at", held.ExpiresAt)
}

// logOtherGeneration logs that other definitions are installed than this process has
// loaded, at most once per lease and minute.
func (r *Runner) logOtherGeneration(ctx context.Context, spec Spec, runID int64, outdated *lease.GenerationError) {
	r.limitedLog(spec, runID).ErrorContext(ctx, "other_definitions_installed", "key", outdated.Key,
		"error", outdated.Error())
}

// limitedLog returns a logger with the attributes of the run, which writes at most one
// line per message, lease, holder and minute.
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
