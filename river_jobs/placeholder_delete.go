package riverjobs

import (
	"context"

	"github.com/riverqueue/river"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/placeholder"
)

// DeletePlaceholder is the kind of the jobs that hand one placeholder user over to those who delete users.
const DeletePlaceholder = placeholder.DeleteKind

// placeholdersAtOnce is how many of them one process works on at once.
const placeholdersAtOnce = 20

// DeletePlaceholderUserArgs name the user.
type DeletePlaceholderUserArgs struct {
	UserID int64 `json:"user_id"`
}

// Kind is frozen: it stands in the rows of running installations.
func (DeletePlaceholderUserArgs) Kind() string { return DeletePlaceholder }

// InsertOpts make the job unique per user while one is waiting or running.
func (DeletePlaceholderUserArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: DeletePlaceholder, MaxAttempts: placeholderAttempts, UniqueOpts: uniqueWhileUnfinished()}
}

// DeletePlaceholderUserWorker looks at one placeholder per job.
type DeletePlaceholderUserWorker struct {
	river.WorkerDefaults[DeletePlaceholderUserArgs]

	deps Deps
}

// Work runs one pass.
func (w *DeletePlaceholderUserWorker) Work(ctx context.Context, job *river.Job[DeletePlaceholderUserArgs]) error {
	return workItem(ctx, w.deps, job, runDeletePlaceholder)
}

func deletePlaceholderJob(c *config.Config) Job {
	return Job{
		Kind: DeletePlaceholder, Queue: DeletePlaceholder, MaxWorkers: placeholdersAtOnce, MaxAttempts: placeholderAttempts,
		Args: map[string]string{"user_id": migrate.Bigint}, Defaults: map[string]any{},
		Row:           migrate.Row{Table: placeholderDetails, Column: "placeholder_user_id", Argument: "user_id"},
		Summary:       "has one placeholder user deleted, unless something refers to it",
		DeletionTable: placeholderDetails,
		Databases:     []string{c.Jobs.Database},
		Run:           foreground(runDeletePlaceholder),
	}
}

// runDeletePlaceholder needs no lease: it is one transaction, which locks the user.
func runDeletePlaceholder(ctx context.Context, deps Deps, args DeletePlaceholderUserArgs) (jobrun.Report, error) {
	db := deps.jobsDB()
	spec := jobrun.Spec{Kind: DeletePlaceholder, Database: db.Name, Shared: true}
	return deps.Runner.Do(ctx, spec, func(ctx context.Context, _ *lease.Lease, _ jobrun.Progress) (jobrun.Result, error) {
		verdict, err := deletePlaceholder(ctx, deps, db, args.UserID)
		if err != nil {
			return jobrun.Result{}, err
		}
		logVerdict(ctx, deps, db, verdict)
		return verdictResult(verdict), nil
	})
}

func deletePlaceholder(ctx context.Context, deps Deps, db database.Database, userID int64) (placeholder.Verdict, error) {
	references, problems, err := CheckPlaceholderUsers(ctx, deps.Config, db, db.Pool)
	if err != nil {
		return placeholder.Verdict{}, err
	}
	// A table that cannot be looked at may refer to anybody.
	if err := deps.fits(ctx, PlaceholderCleanup, db, problems); err != nil {
		return placeholder.Verdict{}, err
	}
	remover := placeholder.Remover{
		DB: db.Pool, Names: db.Names, References: references,
		Limits: placeholder.Limits{
			StatementTimeout: deps.Config.LooseForeignKeys.StatementTimeout, LockTimeout: deps.Config.LooseForeignKeys.LockTimeout,
		},
	}
	return remover.Remove(ctx, userID)
}

func logVerdict(ctx context.Context, deps Deps, db database.Database, verdict placeholder.Verdict) {
	log := deps.Logger.With("kind", DeletePlaceholder, "database", db.Name, "placeholder_user_id", verdict.UserID, "outcome", string(verdict.Outcome))
	switch verdict.Outcome {
	case placeholder.Blocked:
		log.WarnContext(ctx, "placeholder_user_kept", "reason", verdict.Reason, "references", verdict.Blockers)
	case placeholder.Queued:
		log.InfoContext(ctx, "placeholder_user_queued")
	case placeholder.Gone, placeholder.NoPlaceholder, placeholder.QueuedBefore:
		log.DebugContext(ctx, "placeholder_user_left_alone")
	}
}

// verdictResult is what the history and the metrics have of a pass.
func verdictResult(verdict placeholder.Verdict) jobrun.Result {
	result := jobrun.Result{Outcome: jobrun.Done, Reason: verdict.Reason, Stats: verdict}
	switch verdict.Outcome {
	case placeholder.Queued:
		result.Changed, result.Processed = true, 1
		result.Counts = []jobrun.Count{{Metric: metrics.PlaceholdersQueued, N: 1}}
	case placeholder.Blocked:
		result.Processed = 1
		result.Counts = []jobrun.Count{{Metric: metrics.PlaceholdersKept, N: 1}}
		for _, blocker := range verdict.Blockers {
			result.Counts = append(result.Counts, jobrun.Count{Metric: metrics.PlaceholderReferences, Table: blocker.Column, N: 1})
		}
	case placeholder.Gone, placeholder.NoPlaceholder, placeholder.QueuedBefore:
	}
	return result
}
