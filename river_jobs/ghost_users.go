package riverjobs

import (
	"context"
	"log/slog"
	"time"

	"github.com/riverqueue/river"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/ghostuser"
	"sexton/internal/jobrun"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// GhostUsers is the kind of the job that deletes users and moves their contributions to
// the ghost user.
const GhostUsers = "users_migrate_records_to_ghost_user_in_batches"

// MigrateRecordsToGhostUserArgs has no fields, because the job processes all due users.
type MigrateRecordsToGhostUserArgs struct{}

// Kind returns the name of the kind, which is stored in jobs and must not change.
func (MigrateRecordsToGhostUserArgs) Kind() string { return GhostUsers }

// InsertOpts returns options that make the job unique until it finishes. The job has one
// attempt. The next tick or wake-up is the retry.
func (MigrateRecordsToGhostUserArgs) InsertOpts() river.InsertOpts { return uniqueOpts(GhostUsers, 1) }

func ghostUsers(c *config.Config) kind[MigrateRecordsToGhostUserArgs] {
	return kind[MigrateRecordsToGhostUserArgs]{
		Job: Job{
			Cron: c.GhostUsers.Schedule, Summary: "deletes users and moves their contributions to the ghost user",
			DeletionTable: ghostuser.QueueTable,
			Check: func(ctx context.Context, c *config.Config, jobs database.Database) (problem.List, error) {
				_, problems, err := CheckGhostUsers(ctx, c, jobs)
				return problems, err
			},
			entries: func([]definitions.Definition) []string { return ghostEntries(c) },
		},
		bounds: func(MigrateRecordsToGhostUserArgs) bounds {
			// The lease is longer than the runtime, because the last statements may end
			// after it.
			length := c.GhostUsers.MaxRuntime
			return bounds{
				lease: ghostUsersLease, ttl: length + 10*time.Second,
				timeout: length + extraTime(c) + slowNetwork,
			}
		},
		pass: passGhostUsers,
		onEnd: func(ctx context.Context, p *pass, report jobrun.Report, err error) {
			switch {
			case err == nil && report.Outcome != jobrun.Skipped:
				p.Bindings.ghosts.end(time.Now())
			case err != nil && ctx.Err() == nil:
				p.Bindings.ghosts.begin(time.Now(), longestPause)
			}
		},
		due: dueBy[MigrateRecordsToGhostUserArgs]("users", ghostuser.DueSQL(), ghostuser.NextDueSQL()),
		retryDelay: func(_ context.Context, deps Deps, _ database.Database) (time.Duration, error) {
			return deps.Bindings.ghosts.wait(time.Now()), nil
		},
	}
}

const ghostUsersLease = "users/migrate_records_to_ghost_user_in_batches_worker"

// ghostLists converts the configured lists to the types of the package ghostuser.
func ghostLists(c config.GhostUsers) ghostuser.Lists {
	var lists ghostuser.Lists
	if c.Users.Table != "" {
		lists.Users = ghostuser.Users{Table: c.Users.Table, Key: c.Users.Key, Ghost: string(c.Ghost)}
	}
	for _, entry := range c.Move {
		lists.Move = append(lists.Move, ghostuser.Move{
			Table: entry.Table, Columns: entry.Columns,
			Conditions: entry.Conditions, Always: entry.Always,
		})
	}
	for _, entry := range c.Delete {
		lists.Delete = append(lists.Delete, ghostuser.Columns{
			Table: entry.Table, Columns: entry.Columns, Event: entry.EmitsEvent(), EventColumns: entry.Event,
		})
	}
	for _, entry := range c.Nullify {
		lists.Nullify = append(lists.Nullify, ghostuser.Columns{Table: entry.Table, Columns: entry.Columns})
	}
	return lists
}

// CheckGhostUsers binds the lists to the database. It returns the problems of the lists,
// with positions in the file, and the problems of the table of users and of the rule
// function.
func CheckGhostUsers(ctx context.Context, c *config.Config,
	db database.Database,
) (*ghostuser.Plan, problem.List, error) {
	plan, found, err := bindGhostUsers(ctx, c, db, db.Pool)
	if err == nil {
		found, err = withUnmet(ctx, c, db, migrate.GhostUsers, found)
	}
	return plan, found, err
}

// bindGhostUsers binds the lists to the database.
func bindGhostUsers(ctx context.Context, c *config.Config, db database.Database,
	on pgcatalog.Beginner,
) (*ghostuser.Plan, problem.List, error) {
	plan, found, err := ghostuser.Resolve(ctx, on, db.Names.Tracked, ghostLists(c.GhostUsers))
	if err != nil {
		return nil, nil, err
	}
	return plan, Placed(c, found), nil
}

// ghostEntries returns the lists as lines, one per column.
func ghostEntries(c *config.Config) []string {
	entries := columnEntries(c, "nullify", c.GhostUsers.Nullify)
	for _, entry := range c.GhostUsers.Delete {
		for _, column := range entry.Columns {
			suffix := ""
			if entry.EmitsEvent() {
				suffix = " event" + eventColumns(entry.Event)
			}
			entries = append(entries, listEntry(c, "delete", "", entry.Table, column)+suffix)
		}
	}
	for _, move := range c.GhostUsers.Move {
		suffix := ""
		if move.Always {
			suffix = " always"
		}
		suffix += conditionsEntry(move.Conditions)
		for _, column := range move.Columns {
			entries = append(entries, listEntry(c, "move", "", move.Table, column)+suffix)
		}
	}
	return entries
}

func passGhostUsers(ctx context.Context, p *pass, _ MigrateRecordsToGhostUserArgs) (jobrun.Result, error) {
	stats, err := clearGhostUsers(ctx, p)
	if stats == nil {
		return jobrun.Result{}, err
	}
	counts := jobrun.Counts{
		metrics.GhostUsersDestroyed: {"": stats.UsersProcessed}, metrics.GhostUsersFailed: {"": stats.UsersFailed},
		metrics.GhostMoved: stats.Moved, metrics.GhostDeleted: stats.Deleted, metrics.GhostNullified: stats.Nullified,
	}
	ghostAlerts(ctx, p.log, p.db, stats, counts)
	return jobrun.Result{
		Stats: stats, Changed: stats.Changed(), Faults: stats.Errors, Latency: stats.Latency, Counts: counts,
		Processed: stats.UsersProcessed, Failed: stats.UsersFailed,
		Over: stats.OverLimit, Left: "due users are left; the next run continues immediately", Stopped: stats.Interrupted,
		Waited: stats.Held,
		Idle: stats.UsersProcessed+stats.UsersDropped == 0 &&
			len(stats.Moved)+len(stats.Deleted)+len(stats.Nullified) == 0,
	}, err
}

func clearGhostUsers(ctx context.Context, p *pass) (*ghostuser.Stats, error) {
	session, release, err := p.session(ctx, false)
	if err != nil {
		return nil, err
	}
	defer release()
	session.Kept = p.Config.LooseForeignKeys.Undo.On() && p.Config.LooseForeignKeys.Undo.Users
	plan, err := bindUnderLease(ctx, p, GhostUsers, func() (*ghostuser.Plan, problem.List, error) {
		return bindGhostUsers(ctx, p.Config, p.db, session.Conn)
	})
	if err != nil {
		return nil, err
	}
	settings := p.Config.GhostUsers
	more := &batch.SessionPool{Pool: p.db.Pool, First: session}
	defer more.Release()
	engine := ghostuser.Engine{
		Session: session, Plan: plan, Connections: settings.Connections, More: more.Session,
		Limits: ghostuser.Limits{Users: settings.Limit, Runtime: settings.MaxRuntime, RetryAfter: settings.RetryAfter},
		Sizes: ghostuser.Sizes{
			Move: settings.Batches.Move, Delete: settings.Batches.Delete, Nullify: settings.Batches.Nullify,
			Target: settings.Target, Duty: settings.Duty.Fixed(),
		},
		Throttle: p.throttle(session, settings.Duty),
		Progress: progressOn(p, func(stats *ghostuser.Stats) string { return stats.WaitingFor }),
		Ended:    func(ctx context.Context, item ghostuser.Item) { logGhost(ctx, p.log, item) },
	}
	return engine.Run(ctx)
}

func logGhost(ctx context.Context, log *slog.Logger, item ghostuser.Item) {
	log = log.With("user_id", item.UserID, "hard_delete", item.HardDelete, "outcome", string(item.Outcome),
		"moved", item.Moved, "deleted", item.Deleted, "nullified", item.Nullified)
	if item.Outcome == ghostuser.Failed {
		log.ErrorContext(ctx, "user_failed", "table", item.Table, "sqlstate", item.SQLState, "error", item.Message,
			"stack", item.Stack)
		return
	}
	log.InfoContext(ctx, "user_processed")
}

const (
	// GhostBacklogAlert is the number of pending users, including deferred users, above
	// which an alert is logged.
	GhostBacklogAlert = 1000
	// ghostErrorShare is the share of failed users above which an alert is logged, if a
	// pass has finished at least ghostErrorsFrom users.
	ghostErrorShare = 0.1
	ghostErrorsFrom = 10
	// countTime limits the query for pending users at the end of a pass.
	countTime = 2 * time.Second
)

// ghostAlerts logs and counts an alert at the end of a pass if many users have failed,
// and another one if many users are pending.
func ghostAlerts(
	ctx context.Context, log *slog.Logger, db database.Database, stats *ghostuser.Stats, counts jobrun.Counts,
) {
	if share, alarming := ghostErrorRate(stats); alarming {
		log.WarnContext(ctx, "ghost_users_failing",
			"processed", stats.UsersProcessed, "failed", stats.UsersFailed, "error_share", share, "alert_above",
			ghostErrorShare)
		counts[metrics.GhostErrorAlerts] = map[string]int64{"": 1}
	}
	counting, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	backlog, err := ghostuser.ReadBacklog(counting, db.Pool, db.Names)
	switch {
	case err != nil:
		// The pass itself has succeeded, so this error is only logged. A canceled query
		// of a stopping process is not logged.
		if ctx.Err() == nil {
			log.WarnContext(ctx, "ghost_users_not_counted", "error", err)
		}
	case backlog.Pending > GhostBacklogAlert:
		log.WarnContext(ctx, "ghost_users_backlog", "waiting", backlog.Pending, "capped", backlog.Capped,
			"deferred", backlog.Deferred, "oldest_age_seconds", backlog.OldestAgeSeconds, "alert_above",
			GhostBacklogAlert)
		counts[metrics.GhostBacklogAlerts] = map[string]int64{"": 1}
	}
}

// ghostErrorRate returns the share of failed users, and whether it is high enough for an
// alert. Unfinished users do not count.
func ghostErrorRate(stats *ghostuser.Stats) (share float64, alarming bool) {
	finished := stats.UsersProcessed + stats.UsersFailed
	if finished == 0 {
		return 0, false
	}
	share = float64(stats.UsersFailed) / float64(finished)
	return share, finished >= ghostErrorsFrom && share > ghostErrorShare
}
