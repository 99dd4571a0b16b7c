package riverjobs

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/jobrun"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/placeholder"
)

// DeletePlaceholder is the kind of the jobs that hand one placeholder user over to those who delete users.
const DeletePlaceholder = placeholder.DeleteKind

// DeletePlaceholderUserArgs name the user.
type DeletePlaceholderUserArgs struct {
	UserID int64 `json:"user_id"`
}

// Kind is frozen: it stands in the rows of running installations.
func (DeletePlaceholderUserArgs) Kind() string { return DeletePlaceholder }

// InsertOpts make the job unique per user while one is waiting or running.
func (DeletePlaceholderUserArgs) InsertOpts() river.InsertOpts { return once(DeletePlaceholder, 25) }

func deletePlaceholder(*config.Config) kind[DeletePlaceholderUserArgs] {
	return kind[DeletePlaceholderUserArgs]{
		Job: Job{
			MaxWorkers:    20,
			Args:          map[string]string{"user_id": migrate.Bigint},
			Row:           migrate.Row{Table: placeholderDetails, Column: "placeholder_user_id", Argument: "user_id"},
			Summary:       "has one placeholder user deleted, unless something refers to it",
			DeletionTable: placeholderDetails,
			listsOf:       PlaceholderCleanup,
		},
		bounds: func(DeletePlaceholderUserArgs) bounds { return bounds{} }, // It is one transaction, which locks the user.
		pass:   passDeletePlaceholder,
	}
}

// passDeletePlaceholder looks at one placeholder. One whose references may go with tombstones comes back later, which costs no attempt, of
// the job or of the placeholder. After the retry period the references count all the same, as tombstones may wait for ever.
func passDeletePlaceholder(ctx context.Context, p *pass, args DeletePlaceholderUserArgs) (jobrun.Result, error) {
	patient := p.job == nil || time.Since(p.job.CreatedAt) < p.Config.PlaceholderUsers.RetryPeriod
	verdict, err := removePlaceholder(ctx, p.Deps, p.db, args.UserID, patient)
	if err != nil {
		return jobrun.Result{}, err
	}
	if verdict.Outcome == placeholder.Delayed {
		p.later = pauseAfter(p.snoozes())
	}
	logVerdict(ctx, p.log.With("placeholder_user_id", verdict.UserID, "outcome", string(verdict.Outcome)), verdict)
	return verdictResult(verdict), nil
}

func removePlaceholder(ctx context.Context, deps Deps, db database.Database, userID int64, patient bool) (placeholder.Verdict, error) {
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
		Limits: batch.Limits{StatementTimeout: deps.Config.Jobs.StatementTimeout, LockTimeout: deps.Config.Jobs.LockTimeout},
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

func logVerdict(ctx context.Context, log *slog.Logger, verdict placeholder.Verdict) {
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
