package riverjobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"sexton/internal/blobstore"
	"sexton/internal/config"
	"sexton/internal/extdiff"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
)

// MigrateExternalDiff is the kind of the job that moves one diff out of the database.
const MigrateExternalDiff = extdiff.MoveKind

const (
	migrateAttempts = 3
	// migrateWorkers is little: the database is there for others.
	migrateWorkers = 2
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
func (MigrateExternalDiffArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: MigrateExternalDiff, MaxAttempts: migrateAttempts, UniqueOpts: uniqueWhileUnfinished()}
}

// MigrateExternalDiffWorker moves one diff per job.
type MigrateExternalDiffWorker struct {
	river.WorkerDefaults[MigrateExternalDiffArgs]

	deps Deps
}

// Timeout is none, so River's rescuer leaves the job alone, too: a move ends once no byte moves, and the heartbeat gives back the jobs of
// dead workers.
func (*MigrateExternalDiffWorker) Timeout(*river.Job[MigrateExternalDiffArgs]) time.Duration {
	return -1
}

// Work moves the diff. Where the store is not available or refuses, or somebody else works on the diff, the job comes back later,
// which costs no attempt.
func (w *MigrateExternalDiffWorker) Work(ctx context.Context, job *river.Job[MigrateExternalDiffArgs]) error {
	refusal := &w.deps.Bindings.refusal
	if wait := refusal.wait(time.Now()); wait > 0 {
		return river.JobSnooze(wait)
	}
	pass, cancel := w.deps.untilStopped(ctx)
	defer cancel()
	report, err := runMigrateExternalDiff(pass, w.deps, job.Args)
	err = settle(ctx, pass, report, err)
	_, refused := asRefusal(err)
	switch {
	case refused || err == nil && report.Outcome == jobrun.Skipped:
		return river.JobSnooze(max(refusal.wait(time.Now()), pauseAfter(job.Metadata)))
	case err != nil:
		return err
	}
	return finish(ctx, w.deps, job, func(context.Context, pgx.Tx) (bool, error) { return false, nil })
}

// pauseAfter is the length of the next pause. How many there were is in what River notes of a job.
func pauseAfter(metadata []byte) time.Duration {
	var noted struct {
		Snoozes int64 `json:"snoozes"`
	}
	_ = json.Unmarshal(metadata, &noted) // Without a note it is the first.
	return min(firstPause<<min(max(noted.Snoozes, 0), 10), longestPause)
}

func migrateExternalDiffJob(c *config.Config) Job {
	return Job{
		Kind: MigrateExternalDiff, Queue: MigrateExternalDiff, MaxWorkers: migrateWorkers, MaxAttempts: migrateAttempts,
		Args: map[string]string{"diff_id": migrate.Bigint}, Defaults: map[string]any{},
		Row:       migrate.Row{Table: "merge_request_diffs", Column: "id", Argument: "diff_id"},
		Summary:   "moves the texts of one diff to object storage",
		Databases: []string{c.Jobs.Database},
		Run:       foreground(runMigrateExternalDiff),
	}
}

// moveStats are the statistics of a move.
type moveStats struct {
	extdiff.Moved

	// WaitingFor is why the diff could not be moved now.
	WaitingFor string `json:"waiting_for,omitempty"`
	// Refused tells that the store cannot be used as it is configured, or not with this process's credentials.
	Refused bool `json:"refused,omitempty"`
}

// runMigrateExternalDiff moves one diff, under the diff's own claim. It is skipped where it has to wait, and done where there was
// nothing to do. Of the runs that the store refuses, the first one of a pause fails.
func runMigrateExternalDiff(ctx context.Context, deps Deps, args MigrateExternalDiffArgs) (jobrun.Report, error) {
	db := deps.jobsDB()
	holder := ""
	spec := jobrun.Spec{Kind: MigrateExternalDiff, Database: db.Name, Shared: true, Long: true}
	report, err := deps.Runner.Do(ctx, spec, func(ctx context.Context, _ *lease.Lease, _ jobrun.Progress) (jobrun.Result, error) {
		moved, err := moveDiff(ctx, deps, args.DiffID)
		stats := &moveStats{Moved: moved}
		log := deps.Logger.With("kind", MigrateExternalDiff, "database", db.Name, "diff_id", args.DiffID)
		outage, out := asOutage(err)
		busy, taken := errors.AsType[*extdiff.BusyError](err)
		refused, no := asRefusal(err)
		stats.Refused = no
		switch {
		case no && !deps.Bindings.refusal.begin(time.Now()):
			stats.WaitingFor = refused.Error()
		case out:
			stats.WaitingFor = outage.Error()
			log.WarnContext(ctx, "store_unavailable", "error", outage.Error())
		case taken:
			stats.WaitingFor, holder = busy.Error(), busy.Holder
		case err != nil:
			return jobrun.Result{Stats: stats, Failed: 1}, fmt.Errorf("diff %d: %w", args.DiffID, err)
		case moved.Skipped != "":
			log.InfoContext(ctx, "diff_skipped", "reason", string(moved.Skipped))
		default:
			log.InfoContext(ctx, "diff_moved", "key", moved.Key, "bytes", moved.Bytes, "files", moved.Files)
		}
		return moveResult(stats), nil
	})
	report.Holder = holder
	return report, err
}

// moveDiff moves one diff to the store.
func moveDiff(ctx context.Context, deps Deps, diffID int64) (moved extdiff.Moved, err error) {
	moved.DiffID = diffID
	err = deps.Bindings.diffs.use(ctx, deps, func(engine *extdiff.Engine) (err error) {
		moved, err = engine.Move(ctx, diffID)
		return err
	})
	if err == nil && moved.Skipped == "" {
		deps.Bindings.refusal.end()
	}
	return moved, err
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
		result.Processed = 1
		result.Counts = []jobrun.Count{{Metric: metrics.DiffsMoved, N: 1}, {Metric: metrics.DiffBytesMoved, N: stats.Bytes}}
		if stats.Kept > 0 {
			result.Counts = append(result.Counts, jobrun.Count{Metric: metrics.DiffUploadsResumed, N: 1})
		}
	}
	return result
}

func asOutage(err error) (*blobstore.OutageError, bool) {
	return errors.AsType[*blobstore.OutageError](err)
}
