package riverjobs

import (
	"context"
	"slices"
	"time"

	"github.com/riverqueue/river"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/cleanup"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
	"sexton/triggers"
)

// LooseForeignKeys is the kind of the job that deletes or changes the children of deleted
// parents.
const LooseForeignKeys = cleanup.Kind

// LooseForeignKeysCleanupArgs contains the name of the database with the tombstones.
type LooseForeignKeysCleanupArgs struct {
	Database string `json:"database" river:"unique"`
}

// Kind returns the name of the kind, which is stored in jobs and must not change.
func (LooseForeignKeysCleanupArgs) Kind() string { return LooseForeignKeys }

// InsertOpts returns options that make the job unique per database until it finishes. The
// job has one attempt. The next tick or wake-up is the retry.
func (LooseForeignKeysCleanupArgs) InsertOpts() river.InsertOpts {
	return uniqueOpts(LooseForeignKeys, 1)
}

func looseForeignKeys(c *config.Config) kind[LooseForeignKeysCleanupArgs] {
	return kind[LooseForeignKeysCleanupArgs]{
		Job: Job{
			Cron:          c.LooseForeignKeys.Schedule,
			Args:          map[string]string{"database": migrate.Text},
			Defaults:      map[string]any{"database": c.Databases[0].Name},
			Summary:       "deletes or changes the children of deleted parents",
			DeletionTable: triggers.TombstoneTable,
			LimitedByTick: true,
			Databases:     c.DatabaseNames(),
			entries: func(defs []definitions.Definition) []string {
				return render.Each(defs, func(d definitions.Definition) string { return DefinitionEntry(c, d) })
			},
		},
		argsOf: func(database string) LooseForeignKeysCleanupArgs {
			return LooseForeignKeysCleanupArgs{Database: database}
		},
		bounds: func(args LooseForeignKeysCleanupArgs) bounds {
			settings, _ := c.Database(args.Database)
			ttl := settings.EffectiveLimits().Runtime + 10*time.Second
			return bounds{
				database: args.Database, lease: LooseForeignKeysLease(args.Database), ttl: ttl,
				timeout: ttl + extraTime(c) + slowNetwork,
			}
		},
		pass: passLooseForeignKeys,
		due:  looseForeignKeysDue,
	}
}

// LooseForeignKeysLease returns the key of the lease for a database.
func LooseForeignKeysLease(database string) string {
	return "loose_foreign_keys/cleanup_worker:" + database
}

func passLooseForeignKeys(ctx context.Context, p *pass, _ LooseForeignKeysCleanupArgs) (jobrun.Result, error) {
	stats, err := p.cleanup().Run(ctx, p.db, p.granted, p.progress)
	if stats == nil {
		return jobrun.Result{}, err
	}
	result := jobrun.Result{
		Stats: stats, Changed: stats.Changed(), Faults: stats.Errors, Latency: stats.Latency, Counts: countsOf(stats),
		Processed: stats.Processed, Waited: stats.Held,
		Over:    stats.OverLimit || stats.Interrupted && ctx.Err() == nil,
		Stopped: stats.Interrupted && ctx.Err() != nil,
		Idle:    stats.DeleteCount+stats.UpdateCount+stats.Processed+stats.Revived == 0,
	}
	if stats.Interrupted {
		result.Left = "the time limit was reached; the next run continues immediately"
	}
	for _, counts := range stats.Errors {
		result.Failed += counts.Count
	}
	return result, err
}

// countsOf converts the statistics of a pass to counts for the metrics.
func countsOf(stats *loosefk.Stats) jobrun.Counts {
	counts := jobrun.Counts{
		metrics.Deletions: stats.DeleteCountByTable, metrics.Updates: stats.UpdateCountByTable,
		metrics.ConfirmedRecords: {"": stats.Confirmed}, metrics.LateChildren: {"": stats.LateChildren},
		metrics.ProcessedRecords: {}, metrics.RevivedRecords: {},
		metrics.RescheduledRecords: {}, metrics.IncrementedRecords: {},
	}
	for table, parent := range stats.ByParent {
		counts[metrics.ProcessedRecords][table] = parent.Processed
		counts[metrics.RevivedRecords][table] = parent.Revived
		counts[metrics.RescheduledRecords][table] = parent.Rescheduled
		counts[metrics.IncrementedRecords][table] = parent.Incremented
	}
	return counts
}

// childrenIn returns the child tables of one database whose rows are deleted.
func childrenIn(name string, all map[string][]*loosefk.Parent) (children []triggers.Table) {
	for _, parents := range all {
		for _, parent := range parents {
			for _, reference := range parent.References {
				child := triggers.Table{Schema: reference.Child.Schema, Name: reference.Child.Name}
				if reference.Usable() && reference.Database == name && !reference.Updates() &&
					!slices.Contains(children, child) {
					children = append(children, child)
				}
			}
		}
	}
	return children
}

// Tracking returns the trigger configuration of a database and its tracked parents. The
// map all contains the parents by database.
func Tracking(c *config.Config, db database.Database,
	all map[string][]*loosefk.Parent,
) (triggers.Config, []triggers.Parent) {
	parents := all[db.Name]
	tracked := make([]triggers.Parent, len(parents))
	for i, parent := range parents {
		tracked[i] = triggers.Parent{Schema: parent.Schema, Table: parent.Name, KeyColumns: parent.KeyColumns}
		if undo := c.LooseForeignKeys.Undo; undo.Covers(db.Names.Tracked, parent.Schema, parent.Name) {
			tracked[i].Undo = triggers.KeepsAll
		} else if undo.On() && !undo.Spares(db.Names.Tracked, parent.Schema, parent.Name) {
			// Deletions of this parent may also delete rows of tables whose rows undo
			// saves, through tables in between.
			tracked[i].Undo = triggers.KeepsBelow
		}
	}
	cfg := triggers.Config{TrackedSchema: db.Names.Tracked, Truncate: triggers.Policy(c.LooseForeignKeys.Truncate)}
	if undo := c.LooseForeignKeys.Undo; undo.On() {
		cfg.Undo = triggers.Undo{Exclude: undo.ExcludeColumns, MaxRow: undo.MaxRow, Children: childrenIn(db.Name, all)}
		if users := undo.SparedUsers(); users != "" {
			cfg.Undo.Users = triggers.Table{Schema: db.Names.Tracked, Name: users}
		}
		for _, name := range undo.ExcludeTables {
			schema, table := pgcatalog.SplitName(db.Names.Tracked, name)
			cfg.Undo.Excluded = append(cfg.Undo.Excluded, triggers.Table{Schema: schema, Name: table})
		}
		cfg.Undo.Children = slices.DeleteFunc(cfg.Undo.Children, func(child triggers.Table) bool {
			return undo.Spares(db.Names.Tracked, child.Schema, child.Name)
		})
	}
	for _, job := range Jobs(c) {
		if slices.Contains(job.Databases, db.Name) && !job.Inserted() {
			cfg.Wake = append(cfg.Wake, job.wakesIn(db.Names.Tracked)...)
		}
	}
	return cfg, tracked
}
