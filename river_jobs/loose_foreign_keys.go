package riverjobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/migrate"
	"sexton/triggers"
)

// LooseForeignKeys is the kind of the job that cleans up after deleted parents.
const LooseForeignKeys = "loose_foreign_keys_cleanup"

// LooseForeignKeysCleanupArgs names the database whose deleted parents are cleaned up after.
type LooseForeignKeysCleanupArgs struct {
	Database string `json:"database" river:"unique"`
}

// Kind is frozen: it stands in the rows of running installations.
func (LooseForeignKeysCleanupArgs) Kind() string { return LooseForeignKeys }

// InsertOpts make the job unique per database while one is waiting or running. It is tried once: the next
// tick or wake-up is the retry.
func (LooseForeignKeysCleanupArgs) InsertOpts() river.InsertOpts { return once(LooseForeignKeys, 1) }

func looseForeignKeys(c *config.Config) kind[LooseForeignKeysCleanupArgs] {
	return kind[LooseForeignKeysCleanupArgs]{
		Job: Job{
			Cron: c.LooseForeignKeys.Schedule,
			Args: map[string]string{"database": migrate.Text}, Defaults: map[string]any{"database": c.Databases[0].Name},
			Summary:       "deletes or changes the children of deleted parents",
			DeletionTable: "loose_foreign_keys_deleted_records",
			LimitedByTick: true,
			Databases:     names(c),
		},
		argsOf: func(database string) LooseForeignKeysCleanupArgs {
			return LooseForeignKeysCleanupArgs{Database: database}
		},
		bounds: func(args LooseForeignKeysCleanupArgs) bounds {
			settings, _ := c.Database(args.Database)
			ttl := settings.EffectiveLimits().Runtime + 10*time.Second
			return bounds{database: args.Database, lease: looseForeignKeysLease(args.Database), ttl: ttl, timeout: ttl + slowNetwork}
		},
		pass: passLooseForeignKeys,
		due:  looseForeignKeysDue,
	}
}

// names are those of all configured databases.
func names(c *config.Config) []string {
	names := make([]string, len(c.Databases))
	for i, db := range c.Databases {
		names[i] = db.Name
	}
	return names
}

func looseForeignKeysLease(database string) string {
	return "loose_foreign_keys/cleanup_worker:" + database
}

func passLooseForeignKeys(ctx context.Context, p *pass, _ LooseForeignKeysCleanupArgs) (jobrun.Result, error) {
	stats, err := clearTombstones(ctx, p)
	if stats == nil {
		return jobrun.Result{}, err
	}
	result := jobrun.Result{
		Outcome: jobrun.Done, Stats: stats, Changed: stats.Changed(), Processed: stats.Processed, Counts: countsOf(stats), Faults: faultsOf(stats.Errors),
	}
	for _, counts := range stats.Errors {
		result.Failed += counts.Count
	}
	cutShort(&result, false, stats.Interrupted, "")
	if stats.Interrupted && ctx.Err() == nil {
		result.Reason = because("its time was over before everything was done; the next run goes on at once", stats.Held)
	}
	cutShort(&result, stats.OverLimit, false, "")
	left := result.Outcome == jobrun.OverLimit && (ctx.Err() == nil || stats.Held != "")
	result.Held = heldUp(stats.DeleteCount+stats.UpdateCount+stats.Processed+stats.Revived, left, stats.Held, stats.Errors)
	return result, err
}

// clearTombstones runs the engine on one connection. After errors the definitions are bound anew.
func clearTombstones(ctx context.Context, p *pass) (*loosefk.Stats, error) {
	deps, db, granted := p.Deps, p.db, p.granted
	settings, _ := deps.Config.Database(db.Name)
	conn, err := db.Async().Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to database %s: %w", db.Name, err)
	}
	defer conn.Release()
	others := newOthers(deps, db.Name)
	defer others.release()
	var bound *binding
	if err := granted.During(ctx, func() (err error) {
		bound, err = bind(ctx, deps, db, conn, others)
		return err
	}); err != nil {
		return nil, err
	}
	limits := settings.EffectiveLimits()
	timeouts := deps.timeouts()
	elsewhere, err := others.elsewhere(ctx, granted, bound.parents, timeouts)
	if err != nil {
		return nil, err
	}
	session := &batch.Session{Conn: conn.Conn(), Names: db.Names, Fence: granted, Limits: timeouts}
	engine := loosefk.Engine{
		Database: db.Name, Pace: string(settings.Pace), Parents: bound.parents,
		Marks:    deps.Bindings.marksOf(db.Name),
		Adaptive: adaptive(settings.Pace, deps.Config.LooseForeignKeys),
		Confirming: loosefk.Confirming{
			Within: deps.Config.LooseForeignKeys.ConfirmWithin, Grace: deps.Config.LooseForeignKeys.ConfirmGrace,
		},
		Throttle: newThrottle(deps, LooseForeignKeys, settings.Pace, db, session, elsewhere).hooks(),
		Progress: reporter(p.progress),
		Limits:   loosefk.Limits{Deletes: limits.Deletes, Updates: limits.Updates, Runtime: limits.Runtime},
		Session:  session, Elsewhere: elsewhere,
		Lost: func(name string, err error) {
			other, _ := deps.database(name)
			_ = others.lose(ctx, other, other.Unreachable(err))
		},
	}
	stats, err := engine.Run(ctx)
	warnOfConfirming(ctx, deps, db, stats)
	if err == nil && len(stats.Errors) == 0 {
		deps.Bindings.keep(db.Name, bound)
	}
	return stats, err
}

// warnOfConfirming says where children stay because their parents live, and where children that come late may be missed, or are waited for blindly.
func warnOfConfirming(ctx context.Context, deps Deps, db database.Database, stats *loosefk.Stats) {
	log := deps.Logger.With("kind", LooseForeignKeys, "database", db.Name)
	if stats.ConfirmedEarly > 0 {
		log.WarnContext(ctx, "clean-up confirmed although older transactions are open: children that they insert now stay",
			"parents", stats.ConfirmedEarly, "confirm_within_s", deps.Config.LooseForeignKeys.ConfirmWithin.Seconds())
	}
	if stats.Revived > 0 {
		log.WarnContext(ctx, "deleted rows live under their keys: their children stay; see sexton tombstones list --revived", "revived", stats.Revived)
	}
	if stats.ConfirmBlind {
		log.WarnContext(ctx, "other roles' transactions cannot be seen, so clean-up is confirmed after a fixed time: grant the role pg_read_all_stats",
			"confirm_grace_s", deps.Config.LooseForeignKeys.ConfirmGrace.Seconds())
	}
}

// adaptive are the settings of the pace that steers itself, and none for the others.
func adaptive(pace config.Pace, settings config.LooseForeignKeys) loosefk.Adaptive {
	if pace != config.Adaptive {
		return loosefk.Adaptive{}
	}
	return loosefk.Adaptive{Target: settings.Target, Duty: float64(settings.Duty) / 100}
}

// trackNewPartitions puts triggers on partitions of tracked parents that came later. Where that is not
// possible the pass goes on: the rest of the work does not depend on it, and triggers status tells.
func trackNewPartitions(ctx context.Context, deps Deps, db database.Database, conn *pgxpool.Conn, parents []*loosefk.Parent) {
	cfg, tracked := Tracking(deps.Config, db, parents)
	installed, err := triggers.EnsurePartitions(ctx, conn.Conn(), cfg, tracked)
	if err != nil {
		deps.Logger.WarnContext(ctx, "partitions without triggers: their deletions are not recorded",
			"kind", LooseForeignKeys, "database", db.Name, "error", err)
	}
	if len(installed) > 0 {
		deps.Logger.InfoContext(ctx, "triggers installed on new partitions", "kind", LooseForeignKeys, "database", db.Name, "tables", installed)
	}
}

// Tracking says which triggers the parents need.
func Tracking(c *config.Config, db database.Database, parents []*loosefk.Parent) (triggers.Config, []triggers.Parent) {
	tracked := make([]triggers.Parent, len(parents))
	for i, parent := range parents {
		tracked[i] = triggers.Parent{Schema: parent.Schema, Table: parent.Name, KeyColumns: parent.KeyColumns}
	}
	cfg := triggers.Config{JobsSchema: db.Names.Jobs, TrackedSchema: db.Names.Tracked, Truncate: triggers.Policy(c.LooseForeignKeys.Truncate)}
	for _, job := range Jobs(c) {
		if slices.Contains(job.Databases, db.Name) && !job.Inserted() {
			cfg.Wake = append(cfg.Wake, job.wakesIn(db.Names.Tracked)...)
		}
	}
	return cfg, tracked
}
