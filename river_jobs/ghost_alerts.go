package riverjobs

import (
	"context"
	"log/slog"
	"time"

	"sexton/internal/database"
	"sexton/internal/ghostuser"
	"sexton/internal/jobrun"
	"sexton/internal/metrics"
)

const (
	// GhostBacklogAlert is how many users may wait, put off ones included, before somebody should know.
	GhostBacklogAlert = 1000
	// ghostErrorShare is the share of a run's users that may fail, ghostErrorsFrom how many users a share says something about.
	ghostErrorShare = 0.1
	ghostErrorsFrom = 10
	// countTime bounds the look at what waits: a run does not end later because it is slow.
	countTime = 2 * time.Second
)

// ghostAlerts warns, at a run's end, of what an operator should look into, and returns a count for each warning.
func ghostAlerts(ctx context.Context, log *slog.Logger, db database.Database, stats *ghostuser.Stats) []jobrun.Count {
	var raised []jobrun.Count
	if share, alarming := ghostErrorRate(stats); alarming {
		log.WarnContext(ctx, "many users could not be deleted",
			"processed", stats.UsersProcessed, "failed", stats.UsersFailed, "error_share", share, "alert_above", ghostErrorShare)
		raised = append(raised, jobrun.Count{Metric: metrics.GhostErrorAlerts, N: 1})
	}
	counting, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	backlog, err := ghostuser.ReadBacklog(counting, db.Pool, db.Names)
	switch {
	case err != nil:
		// The run itself went through. A run that is asked to stop counts nothing either.
		if ctx.Err() == nil {
			log.WarnContext(ctx, "waiting users cannot be counted", "error", err)
		}
	case backlog.Pending > GhostBacklogAlert:
		log.WarnContext(ctx, "many users wait to be deleted", "waiting", backlog.Pending, "capped", backlog.Capped,
			"deferred", backlog.Deferred, "oldest_age_seconds", backlog.OldestAgeSeconds, "alert_above", GhostBacklogAlert)
		raised = append(raised, jobrun.Count{Metric: metrics.GhostBacklogAlerts, N: 1})
	}
	return raised
}

// ghostErrorRate is the share of failures among the users that a run is through with, and whether that is too many. Those
// that its end came before say nothing yet.
func ghostErrorRate(stats *ghostuser.Stats) (share float64, alarming bool) {
	through := stats.UsersProcessed + stats.UsersFailed
	if through == 0 {
		return 0, false
	}
	share = float64(stats.UsersFailed) / float64(through)
	return share, through >= ghostErrorsFrom && share > ghostErrorShare
}
