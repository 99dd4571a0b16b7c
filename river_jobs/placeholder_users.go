package riverjobs

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/jobrun"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/internal/placeholder"
	"sexton/internal/problem"
	"sexton/internal/render"
	"sexton/triggers"
)

// PlaceholderCleanup is the kind of the job that inserts jobs for the deletion of
// placeholder users of deleted imports.
const PlaceholderCleanup = "import_placeholder_user_cleanup"

const placeholderLease = "import/placeholder_user_cleanup_worker"

const (
	placeholderTTL = time.Minute
	// placeholderRuntime limits a pass. It is a few seconds shorter than the lease, so
	// that the pass can record its end.
	placeholderRuntime = 50 * time.Second
)

// PlaceholderUserCleanupArgs has no fields, because the job processes all due users.
type PlaceholderUserCleanupArgs struct{}

// Kind returns the name of the kind, which is stored in jobs and must not change.
func (PlaceholderUserCleanupArgs) Kind() string { return PlaceholderCleanup }

// InsertOpts returns options that make the job unique until it finishes.
func (PlaceholderUserCleanupArgs) InsertOpts() river.InsertOpts {
	return uniqueOpts(PlaceholderCleanup, 25)
}

func placeholderCleanup(c *config.Config) kind[PlaceholderUserCleanupArgs] {
	rules := PlaceholderRules(c)
	return kind[PlaceholderUserCleanupArgs]{
		Job: Job{
			Cron:          c.PlaceholderUsers.Schedule,
			Summary:       "inserts jobs that delete the placeholder users of deleted imports",
			DeletionTable: placeholder.DetailsTable,
			Wakes:         []triggers.Wake{{Table: placeholder.DetailsTable, Due: "NEW.namespace_id IS NULL"}},
			Check: func(ctx context.Context, c *config.Config, jobs database.Database) (problem.List, error) {
				_, problems, err := CheckPlaceholderUsers(ctx, c, jobs, jobs.Pool)
				return problems, err
			},
			entries: func([]definitions.Definition) []string {
				return columnEntries(c, "reference", c.PlaceholderUsers.References)
			},
		},
		bounds: func(PlaceholderUserCleanupArgs) bounds {
			return bounds{lease: placeholderLease, ttl: placeholderTTL, timeout: placeholderTTL + extraTime(c)}
		},
		pass: passPlaceholderCleanup,
		due: dueBy[PlaceholderUserCleanupArgs](
			"placeholder users", placeholder.DueSQL(), placeholder.NextDueSQL(), rules.MaxAttempts,
			rules.RetryPeriod.Seconds()),
		retryDelay: func(ctx context.Context, _ Deps, db database.Database) (time.Duration, error) {
			return untilRetried(ctx, db, PlaceholderCleanup, retryPause)
		},
	}
}

// PlaceholderRules returns the configured rules.
func PlaceholderRules(c *config.Config) placeholder.Rules {
	return placeholder.Rules{MaxAttempts: c.PlaceholderUsers.MaxAttempts, RetryPeriod: c.PlaceholderUsers.RetryPeriod}
}

// retryPause is the time after a failure for which wake-ups are ignored. River's own
// retries wait longer each time.
const retryPause = time.Minute

// untilRetried returns the time for which wake-ups must not retry a failed job of the
// kind, at most longest. An immediate retry would probably fail again.
func untilRetried(ctx context.Context, db database.Database, kind string,
	longest time.Duration,
) (time.Duration, error) {
	seconds, err := db.Queries().JobsRetryIn(ctx, longest.Seconds(), kind)
	return max(0, time.Duration(seconds*float64(time.Second))), problem.Doing(err, "search for failed jobs of %s", kind)
}

// CheckPlaceholderUsers binds the references to the database. The returned problems have
// positions in the file.
func CheckPlaceholderUsers(
	ctx context.Context, c *config.Config, db database.Database, on pgcatalog.Beginner,
) (*placeholder.References, problem.List, error) {
	entries := render.Each(c.PlaceholderUsers.References,
		func(entry config.TableColumns) placeholder.Reference { return placeholder.Reference(entry) })
	bound, found, err := placeholder.Bind(ctx, on, db.Names, entries)
	if err != nil {
		return nil, nil, err
	}
	return bound, Placed(c, found), nil
}

func passPlaceholderCleanup(ctx context.Context, p *pass, _ PlaceholderUserCleanupArgs) (jobrun.Result, error) {
	stats, err := insertPlaceholderJobs(ctx, p)
	if stats == nil {
		return jobrun.Result{}, err
	}
	switch {
	case err != nil:
	case stats.Failed > 0:
		err = fmt.Errorf("insert jobs for %d placeholder users: SQLSTATE %s: %s", stats.Failed, stats.Errors[0].SQLState,
			stats.Errors[0].Message)
	case len(stats.Errors) > 0: // Other sessions have locked rows. These rows remain due.
		p.deferJob()
	}
	return jobrun.Result{
		Stats: stats, Changed: stats.Scheduled+stats.Failed > 0, Faults: stats.Errors,
		Processed: stats.Scheduled, Failed: stats.Failed,
		Over: stats.OverLimit, Left: "due placeholder users are left; the next run continues immediately",
		Stopped: stats.Interrupted,
		Counts: jobrun.Counts{
			metrics.PlaceholdersScheduled: {"": stats.Scheduled}, metrics.PlaceholdersFinal: {"": stats.FinalAttempts},
		},
	}, err
}

// insertPlaceholderJobs runs the engine that inserts jobs for due placeholder users.
func insertPlaceholderJobs(ctx context.Context, p *pass) (*placeholder.Stats, error) {
	session, release, err := p.session(ctx, true)
	if err != nil {
		return nil, err
	}
	defer release()
	// If the references do not fit the database, each inserted job would fail and use up
	// an attempt.
	_, problems, err := CheckPlaceholderUsers(ctx, p.Config, p.db, session.Conn)
	if err != nil {
		return nil, err
	}
	if err := p.fits(ctx, PlaceholderCleanup, p.db, problems); err != nil {
		return nil, err
	}
	settings, rules := p.Config.PlaceholderUsers, PlaceholderRules(p.Config)
	start, err := p.db.Names.Queries(session.Conn).JobsStart(ctx, settings.Spacing.Seconds(), placeholder.DeleteKind)
	if err != nil {
		return nil, fmt.Errorf("search for pending jobs of %s: %w", placeholder.DeleteKind, err)
	}
	if err := placeholder.SaveRules(ctx, session.Conn, p.db.Names, rules); err != nil {
		return nil, err
	}
	engine := placeholder.Engine{
		Session: session, Rules: rules, Start: start, Spacing: settings.Spacing, Runtime: placeholderRuntime,
		Offered: func(ctx context.Context, item placeholder.Item) { logOffer(ctx, p.log, settings.MaxAttempts, item) },
	}
	return engine.Run(ctx)
}

func logOffer(ctx context.Context, log *slog.Logger, most int, item placeholder.Item) {
	log = log.With("placeholder_user_id", item.UserID, "attempt", item.Attempt)
	if item.Final {
		message := fmt.Sprintf("Maximum deletion attempts (%d) reached for deletion of placeholder user. Making final deletion attempt.", most)
		log.WarnContext(ctx, message) //nolint:sloglint // the requirement's text, in which the number is configured
	}
	log.InfoContext(ctx, "placeholder_user_scheduled", "scheduled_at", item.ScheduledAt.UTC())
}

// DeletePlaceholder is the kind of the job that queues one placeholder user for the
// deletion of users.
const DeletePlaceholder = placeholder.DeleteKind

// DeletePlaceholderUserArgs contains the ID of the placeholder user.
type DeletePlaceholderUserArgs struct {
	UserID int64 `json:"user_id"`
}

// Kind returns the name of the kind, which is stored in jobs and must not change.
func (DeletePlaceholderUserArgs) Kind() string { return DeletePlaceholder }

// InsertOpts returns options that make the job unique per user until it finishes.
func (DeletePlaceholderUserArgs) InsertOpts() river.InsertOpts {
	return uniqueOpts(DeletePlaceholder, 25)
}

func deletePlaceholder(*config.Config) kind[DeletePlaceholderUserArgs] {
	return kind[DeletePlaceholderUserArgs]{
		Job: Job{
			MaxWorkers: 20,
			Args:       map[string]string{"user_id": migrate.Bigint},
			Row: migrate.Row{
				Table: placeholder.DetailsTable, Column: "placeholder_user_id",
				Argument: "user_id",
			},
			Summary:       "queues one placeholder user for deletion, unless rows refer to it",
			DeletionTable: placeholder.DetailsTable,
			listsOf:       PlaceholderCleanup,
		},
		// The kind has no lease, because a pass is one transaction, which locks the user.
		bounds: func(DeletePlaceholderUserArgs) bounds { return bounds{} },
		pass:   passDeletePlaceholder,
	}
}

// passDeletePlaceholder queues one placeholder user for deletion if no row refers to the
// user. If pending tombstones may delete the referring rows, the job is deferred without
// counting an attempt. It is deferred only during the retry period, because tombstones
// may be pending forever.
func passDeletePlaceholder(ctx context.Context, p *pass, args DeletePlaceholderUserArgs) (jobrun.Result, error) {
	mayDefer := p.job == nil || time.Since(p.job.CreatedAt) < p.Config.PlaceholderUsers.RetryPeriod
	verdict, err := p.removePlaceholder(ctx, args.UserID, mayDefer)
	if err != nil {
		return jobrun.Result{}, err
	}
	log := p.log.With("placeholder_user_id", verdict.UserID, "outcome", string(verdict.Outcome))
	result := jobrun.Result{Reason: verdict.Reason, Stats: verdict}
	switch verdict.Outcome {
	case placeholder.Blocked:
		log.WarnContext(ctx, "placeholder_user_kept", "reason", verdict.Reason, "references", verdict.Blockers)
		blockers := map[string]int64{}
		for _, blocker := range verdict.Blockers {
			blockers[blocker.Column]++
		}
		result.Processed = 1
		result.Counts = jobrun.Counts{metrics.PlaceholdersKept: {"": 1}, metrics.PlaceholderReferences: blockers}
	case placeholder.Delayed:
		log.InfoContext(ctx, "placeholder_user_delayed", "reason", verdict.Reason, "references", verdict.Blockers)
		p.deferJob()
	case placeholder.Queued:
		log.InfoContext(ctx, "placeholder_user_queued")
		result.Changed, result.Processed, result.Counts = true, 1, jobrun.Counts{metrics.PlaceholdersQueued: {"": 1}}
	case placeholder.Gone, placeholder.NoPlaceholder, placeholder.QueuedBefore:
		log.DebugContext(ctx, "placeholder_user_left_alone")
	}
	return result, nil
}

func (p *pass) removePlaceholder(ctx context.Context, userID int64, mayDefer bool) (placeholder.Verdict, error) {
	references, problems, err := CheckPlaceholderUsers(ctx, p.Config, p.db, p.db.Pool)
	if err != nil {
		return placeholder.Verdict{}, err
	}
	// A table that cannot be read may refer to any user.
	if err := p.fits(ctx, PlaceholderCleanup, p.db, problems); err != nil {
		return placeholder.Verdict{}, err
	}
	remover := placeholder.Remover{
		DB: p.db.Pool, Watched: p.db.Pool, Names: p.db.Names, References: references, Limits: p.timeouts(),
		Current: func(ctx context.Context, tx pgx.Tx) error {
			return p.Runner.Leases.CheckGeneration(ctx, tx,
				placeholderLease)
		},
	}
	verdict, err := remover.Remove(ctx, userID)
	if err != nil || !mayDefer || len(verdict.Blockers) == 0 || !p.Config.Has(migrate.LooseForeignKeys) {
		return verdict, err
	}
	columns := render.Each(verdict.Blockers, func(blocker placeholder.Blocker) string { return blocker.Column })
	pending, err := p.pendingAbove(ctx, references, columns)
	switch {
	case err != nil:
		return placeholder.Verdict{}, err
	case len(pending) > 0:
		verdict.Outcome = placeholder.Delayed
		verdict.Reason = "tombstones of " + strings.Join(pending, ", ") + " are pending; " + verdict.Reason
		return verdict, nil
	}
	// The tombstones, and with them the referring rows, may have been deleted since the
	// first try.
	return remover.Remove(ctx, userID)
}

// pendingAbove returns the tables, in all databases, with pending tombstones that may
// delete rows of the columns.
func (p *pass) pendingAbove(ctx context.Context, references *placeholder.References,
	columns []string,
) (pending []string, _ error) {
	above, err := references.Above(ctx, p.db.Pool, p.db.Names, p.Definitions, columns)
	if err != nil {
		return nil, err
	}
	for _, tracked := range p.Databases {
		found, err := placeholder.Pending(ctx, tracked.Pool, tracked.Names, above)
		if err != nil {
			return nil, fmt.Errorf("database %s: %w", tracked.Name, err)
		}
		pending = append(pending, found...)
	}
	return pending, nil
}
