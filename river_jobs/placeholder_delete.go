package riverjobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
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

// Work runs one pass. A placeholder whose references may go with tombstones comes back later, which costs no attempt, of the job or
// of the placeholder. After the retry period the references count all the same, as tombstones may wait for ever.
func (w *DeletePlaceholderUserWorker) Work(ctx context.Context, job *river.Job[DeletePlaceholderUserArgs]) error {
	return workItem(ctx, w.deps, job, func(ctx context.Context, deps Deps, args DeletePlaceholderUserArgs) (jobrun.Report, error) {
		patient := time.Since(job.CreatedAt) < deps.Config.PlaceholderUsers.RetryPeriod
		report, outcome, err := workPlaceholder(ctx, deps, args, patient)
		if err == nil && outcome == placeholder.Delayed {
			err = river.JobSnooze(pauseAfter(job.Metadata))
		}
		return report, err
	})
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

func runDeletePlaceholder(ctx context.Context, deps Deps, args DeletePlaceholderUserArgs) (jobrun.Report, error) {
	report, _, err := workPlaceholder(ctx, deps, args, true)
	return report, err
}

// workPlaceholder needs no lease: it is one transaction, which locks the user.
func workPlaceholder(
	ctx context.Context, deps Deps, args DeletePlaceholderUserArgs, patient bool,
) (report jobrun.Report, outcome placeholder.Outcome, _ error) {
	db := deps.jobsDB()
	spec := jobrun.Spec{Kind: DeletePlaceholder, Database: db.Name, Shared: true}
	report, err := deps.Runner.Do(ctx, spec, func(ctx context.Context, _ *lease.Lease, _ jobrun.Progress) (jobrun.Result, error) {
		verdict, err := deletePlaceholder(ctx, deps, db, args.UserID, patient)
		if err != nil {
			return jobrun.Result{}, err
		}
		outcome = verdict.Outcome
		logVerdict(ctx, deps, db, verdict)
		return verdictResult(verdict), nil
	})
	return report, outcome, err
}

func deletePlaceholder(ctx context.Context, deps Deps, db database.Database, userID int64, patient bool) (placeholder.Verdict, error) {
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
		Limits: placeholder.Limits{StatementTimeout: deps.Config.Jobs.StatementTimeout, LockTimeout: deps.Config.Jobs.LockTimeout},
		Current: func(ctx context.Context, tx pgx.Tx) error {
			return deps.Runner.Leases.Current(ctx, tx, placeholderLease)
		},
	}
	verdict, err := remover.Remove(ctx, userID)
	if err != nil || !patient || len(verdict.Blockers) == 0 || !deps.Config.LooseForeignKeys.Enabled {
		return verdict, err
	}
	columns := make([]string, len(verdict.Blockers))
	for i, blocker := range verdict.Blockers {
		columns[i] = blocker.Column
	}
	pending, err := pendingAbove(ctx, deps, db, references, columns)
	switch {
	case err != nil:
		return placeholder.Verdict{}, err
	case len(pending) > 0:
		verdict.Outcome = placeholder.Delayed
		verdict.Reason = "tombstones of " + strings.Join(pending, ", ") + " wait; " + verdict.Reason
		return verdict, nil
	}
	// The tombstones may have gone since the look, and what refers to the user with them.
	return remover.Remove(ctx, userID)
}

// pendingAbove returns the tables with tombstones that may take rows of the columns along, wherever they are tracked.
func pendingAbove(
	ctx context.Context, deps Deps, db database.Database, references *placeholder.References, columns []string,
) (pending []string, _ error) {
	above, err := references.Above(ctx, db.Pool, db.Names, deps.Definitions, columns)
	if err != nil {
		return nil, err
	}
	for _, tracked := range deps.Databases {
		found, err := placeholder.Pending(ctx, tracked.Pool, tracked.Names, above)
		if err != nil {
			return nil, fmt.Errorf("database %s: %w", tracked.Name, err)
		}
		pending = append(pending, found...)
	}
	return pending, nil
}

func logVerdict(ctx context.Context, deps Deps, db database.Database, verdict placeholder.Verdict) {
	log := deps.Logger.With("kind", DeletePlaceholder, "database", db.Name, "placeholder_user_id", verdict.UserID, "outcome", string(verdict.Outcome))
	switch verdict.Outcome {
	case placeholder.Blocked:
		log.WarnContext(ctx, "placeholder_user_kept", "reason", verdict.Reason, "references", verdict.Blockers)
	case placeholder.Delayed:
		log.InfoContext(ctx, "placeholder_user_delayed", "reason", verdict.Reason, "references", verdict.Blockers)
	case placeholder.Queued:
		log.InfoContext(ctx, "placeholder_user_queued")
	case placeholder.Gone, placeholder.NoPlaceholder, placeholder.QueuedBefore:
		log.DebugContext(ctx, "placeholder_user_left_alone")
	}
}

// verdictResult is the result of a pass for the history and the metrics.
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
	case placeholder.Gone, placeholder.NoPlaceholder, placeholder.QueuedBefore, placeholder.Delayed:
	}
	return result
}
