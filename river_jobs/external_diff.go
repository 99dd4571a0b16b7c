package riverjobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"sexton/internal/blobstore"
	"sexton/internal/config"
	"sexton/internal/extdiff"
	"sexton/internal/jobrun"
	"sexton/internal/latency"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
)

// MigrateExternalDiff is the kind of the job that moves one diff out of the database.
const MigrateExternalDiff = extdiff.MoveKind

const (
	// longestTransfer bounds each statement that puts an object back into rows.
	longestTransfer = 100 * time.Second
	// A job pauses firstPause after the first outage, twice as long after each one more, and longestPause at most.
	firstPause   = 10 * time.Second
	longestPause = 15 * time.Minute
)

// MigrateExternalDiffArgs name the diff.
type MigrateExternalDiffArgs struct {
	DiffID int64 `json:"diff_id" river:"unique"`
}

// Kind is frozen: it stands in the rows of running installations.
func (MigrateExternalDiffArgs) Kind() string { return MigrateExternalDiff }

// InsertOpts make the job unique per diff while one is waiting or running.
func (MigrateExternalDiffArgs) InsertOpts() river.InsertOpts { return once(MigrateExternalDiff, 3) }

func migrateDiff(c *config.Config) kind[MigrateExternalDiffArgs] {
	return kind[MigrateExternalDiffArgs]{
		Job: Job{
			MaxWorkers: c.ExternalDiffs.MaxWorkers,
			Args:       map[string]string{"diff_id": migrate.Bigint},
			Row:        migrate.Row{Table: "merge_request_diffs", Column: "id", Argument: "diff_id"},
			Summary:    "moves the texts of one diff to object storage",

			DeletionTable: diffTable,
		},
		// Without a timeout River's rescuer leaves the job alone, too: a move ends once no byte moves, and the heartbeat gives back the jobs of
		// dead workers. Instead of a lease it has the diff's own claim.
		bounds: func(MigrateExternalDiffArgs) bounds { return bounds{timeout: -1, long: true} },
		pass:   passMigrateDiff,
		before: func(deps Deps) time.Duration { return deps.Bindings.refusal.wait(time.Now()) },
	}
}

// pauseAfter is the length of the next pause, after so many.
func pauseAfter(pauses int) time.Duration { return min(firstPause<<min(pauses, 10), longestPause) }

// moveStats are the statistics of a move.
type moveStats struct {
	extdiff.Moved

	// WaitingFor is why the diff could not be moved now.
	WaitingFor string `json:"waiting_for,omitempty"`
	// Refused tells that the store cannot be used as it is configured, or not with this process's credentials.
	Refused bool `json:"refused,omitempty"`
	// Latency is the time since the job was inserted, of a diff that was moved.
	Latency latency.Histogram `json:"latency_seconds,omitempty"`
}

// passMigrateDiff moves one diff. It is skipped where it has to wait, and done where there was nothing to do. Where the store is not
// available or refuses, or another process works on the diff, the job comes back later, which costs no attempt. Of the runs that the store
// refuses, the first one of a pause fails.
func passMigrateDiff(ctx context.Context, p *pass, args MigrateExternalDiffArgs) (jobrun.Result, error) {
	moved := extdiff.Moved{DiffID: args.DiffID}
	err := p.useDiffs(ctx, func(engine *extdiff.Engine) (err error) {
		moved, err = engine.Move(ctx, args.DiffID)
		return err
	})
	stats := &moveStats{Moved: moved}
	log := p.log.With("diff_id", args.DiffID)
	outage, out := errors.AsType[*blobstore.OutageError](err)
	busy, taken := errors.AsType[*extdiff.BusyError](err)
	refused, no := errors.AsType[*blobstore.AccessError](err)
	stats.Refused = no
	refusal := &p.Bindings.refusal
	first := no && refusal.begin(time.Now())
	if out || taken || no {
		p.later = max(refusal.wait(time.Now()), pauseAfter(p.snoozes()))
	}
	switch {
	case no && !first:
		stats.WaitingFor = refused.Error()
	case out:
		stats.WaitingFor = outage.Error()
		log.WarnContext(ctx, "store_unavailable", "error", outage.Error())
	case taken:
		stats.WaitingFor, p.holder = busy.Error(), busy.Holder
	case err != nil:
		return jobrun.Result{Stats: stats, Failed: 1}, fmt.Errorf("diff %d: %w", args.DiffID, err)
	case moved.Skipped != "":
		log.InfoContext(ctx, "diff_skipped", "reason", string(moved.Skipped))
	default:
		refusal.end()
		if p.job != nil {
			stats.Latency.Add(time.Since(p.job.CreatedAt))
		}
		log.InfoContext(ctx, "diff_moved", "key", moved.Key, "bytes", moved.Bytes, "files", moved.Files)
	}
	return moveResult(stats), nil
}

func moveResult(stats *moveStats) jobrun.Result {
	result := jobrun.Result{Outcome: jobrun.Done, Stats: stats, Changed: true}
	switch {
	case stats.WaitingFor != "":
		result.Outcome, result.Reason, result.Changed = jobrun.Skipped, stats.WaitingFor, false
		if stats.BrokenOff {
			result.Counts = []jobrun.Count{{Metric: metrics.DiffUploadsBroken, N: 1}}
		}
	case stats.Skipped != "":
		result.Reason = string(stats.Skipped)
		result.Counts = []jobrun.Count{{Metric: metrics.DiffsSkipped, Reason: result.Reason, N: 1}}
	default:
		result.Processed, result.Latency = 1, stats.Latency
		result.Counts = []jobrun.Count{{Metric: metrics.DiffsMoved, N: 1}, {Metric: metrics.DiffBytesMoved, N: stats.Bytes}}
		if stats.Kept > 0 {
			result.Counts = append(result.Counts, jobrun.Count{Metric: metrics.DiffUploadsResumed, N: 1})
		}
	}
	return result
}
