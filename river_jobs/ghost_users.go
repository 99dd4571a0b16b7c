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

// GhostUsers is the kind of the job that deletes users, whose contributions pass to the
// ghost user.
const GhostUsers = "users_migrate_records_to_ghost_user_in_batches"

// MigrateRecordsToGhostUserArgs are none: the job takes every user who is due.
type MigrateRecordsToGhostUserArgs struct{}

// Kind is frozen: it stands in the rows of running installations.
func (MigrateRecordsToGhostUserArgs) Kind() string { return GhostUsers }

// InsertOpts make the job unique while one is waiting or running. It is tried once: the
// next tick or wake-up is the retry.
func (MigrateRecordsToGhostUserArgs) InsertOpts() river.InsertOpts { return once(GhostUsers, 1) }

func ghostUsers(c *config.Config) kind[MigrateRecordsToGhostUserArgs] {
	return kind[MigrateRecordsToGhostUserArgs]{
		Job: Job{
			Cron: c.GhostUsers.Schedule, Summary: "deletes users and moves what they wrote to the ghost user",
			DeletionTable: ghostuser.QueueTable,
			Check: func(ctx context.Context, c *config.Config, jobs database.Database) (problem.List, error) {
				_, problems, err := CheckGhostUsers(ctx, c, jobs)
				return problems, err
			},
			entries: func([]definitions.Definition) []string { return ghostEntries(c) },
		},
		bounds: func(MigrateRecordsToGhostUserArgs) bounds {
			// The lease is for the statements that are running at the end, too.
			length := c.GhostUsers.MaxRuntime
			return bounds{
				lease: ghostUsersLease, ttl: length + 10*time.Second,
				timeout: length + longer(c) + slowNetwork,
			}
		},
		pass: passGhostUsers,
		ended: func(ctx context.Context, p *pass, report jobrun.Report, err error) {
			switch {
			case err == nil && report.Outcome != jobrun.Skipped:
				p.Bindings.ghosts.end(time.Now())
			case err != nil && ctx.Err() == nil:
				p.Bindings.ghosts.begin(time.Now(), longestPause)
			}
		},
		due: dueBy[MigrateRecordsToGhostUserArgs]("users", ghostuser.DueSQL(), ghostuser.NextDueSQL()),
		// A kind that fails as a whole leaves its wake-ups alone for a while.
		rest: func(_ context.Context, deps Deps, _ database.Database) (time.Duration, error) {
			return deps.Bindings.ghosts.wait(time.Now()), nil
		},
	}
}

const ghostUsersLease = "users/migrate_records_to_ghost_user_in_batches_worker"

// ghostLists are the configured lists, as the domain takes them.
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
			Table: entry.Table, Columns: entry.Columns, Event: entry.Tells(), EventColumns: entry.Event,
		})
	}
	for _, entry := range c.Nullify {
		lists.Nullify = append(lists.Nullify, ghostuser.Columns{Table: entry.Table, Columns: entry.Columns})
	}
	return lists
}

// CheckGhostUsers binds the lists to the database. It returns what does not fit, with its
// place in the file, and what the table of users and the rule lack.
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

// ghostEntries are the lists, a line for each column.
func ghostEntries(c *config.Config) []string {
	entries := columnEntries(c, "nullify", c.GhostUsers.Nullify)
	for _, entry := range c.GhostUsers.Delete {
		for _, column := range entry.Columns {
			rest := ""
			if entry.Tells() {
				rest = " event" + eventColumns(entry.Event)
			}
			entries = append(entries, listEntry(c, "delete", "", entry.Table, column)+rest)
		}
	}
	for _, move := range c.GhostUsers.Move {
		rest := ""
		if move.Always {
			rest = " always"
		}
		rest += conditionsEntry(move.Conditions)
		for _, column := range move.Columns {
			entries = append(entries, listEntry(c, "move", "", move.Table, column)+rest)
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
		Over: stats.OverLimit, Left: "due users are left; the next run goes on at once", Stopped: stats.Interrupted,
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
	var plan *ghostuser.Plan
	var problems problem.List
	if err := p.granted.RenewDuring(ctx, func() (err error) {
		plan, problems, err = bindGhostUsers(ctx, p.Config, p.db, session.Conn)
		return err
	}); err != nil {
		return nil, err
	}
	if err := p.fits(ctx, GhostUsers, p.db, problems); err != nil {
		return nil, err
	}
	settings := p.Config.GhostUsers
	said := ""
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
		Progress: func(ctx context.Context, stats *ghostuser.Stats) {
			changed := stats.WaitingFor != said
			said = stats.WaitingFor
			p.progress(ctx, stats, changed)
		},
		Ended: func(ctx context.Context, item ghostuser.Item) { logGhost(ctx, p.log, item) },
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
	// GhostBacklogAlert is how many users may wait, put off ones included, before a
	// person should know.
	GhostBacklogAlert = 1000
	// ghostErrorShare is the share of a run's users that may fail, ghostErrorsFrom how
	// many users a share says something about.
	ghostErrorShare = 0.1
	ghostErrorsFrom = 10
	// countTime bounds the look at what waits: a run does not end later because it is
	// slow.
	countTime = 2 * time.Second
)

// ghostAlerts logs and counts warnings about many failed and many pending users at the
// end of a run.
func ghostAlerts(
	ctx context.Context, log *slog.Logger, db database.Database, stats *ghostuser.Stats, counts jobrun.Counts,
) {
	if share, alarming := ghostErrorRate(stats); alarming {
		log.WarnContext(ctx, "many users could not be deleted",
			"processed", stats.UsersProcessed, "failed", stats.UsersFailed, "error_share", share, "alert_above",
			ghostErrorShare)
		counts[metrics.GhostErrorAlerts] = map[string]int64{"": 1}
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
			"deferred", backlog.Deferred, "oldest_age_seconds", backlog.OldestAgeSeconds, "alert_above",
			GhostBacklogAlert)
		counts[metrics.GhostBacklogAlerts] = map[string]int64{"": 1}
	}
}

// ghostErrorRate is the share of failures among the users that a run is through with, and
// whether that is too many. Those that its end came before say nothing yet.
func ghostErrorRate(stats *ghostuser.Stats) (share float64, alarming bool) {
	through := stats.UsersProcessed + stats.UsersFailed
	if through == 0 {
		return 0, false
	}
	share = float64(stats.UsersFailed) / float64(through)
	return share, through >= ghostErrorsFrom && share > ghostErrorShare
}
