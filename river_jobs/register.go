package riverjobs

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"

	"github.com/riverqueue/river"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/extdiff"
	"sexton/internal/jobrun"
	"sexton/internal/listen"
	"sexton/internal/migrate"
	"sexton/internal/problem"
	"sexton/triggers"
)

// Deps are the dependencies of the jobs.
type Deps struct {
	Config *config.Config
	// Databases are connected, in the configured order.
	Databases []database.Database
	// Definitions are those of the loose foreign keys.
	Definitions []definitions.Definition
	Runner      *jobrun.Runner
	Bindings    *Bindings
	Logger      *slog.Logger
	// RiverLogger is the log of River itself; nil: Logger.
	RiverLogger *slog.Logger
	// Working is told of each job before it is worked on, and calls back when its row
	// says how it ended. May be nil.
	Working func(id int64) (done func())
	// Stopping ends when the process is asked to stop: passes end after their running
	// batch. Nil means that only a pass's own context ends it.
	Stopping context.Context //nolint:containedctx // the process's, beside that of each job
}

// jobsDB is the database with River's and Sexton's own tables.
func (d Deps) jobsDB() database.Database { return d.Runner.Leases.Jobs }

// timeouts bound every statement on the application's tables, whatever the kind.
func (d Deps) timeouts() batch.Limits {
	return batch.Limits{StatementTimeout: d.Config.Jobs.StatementTimeout, LockTimeout: d.Config.Jobs.LockTimeout}
}

// untilStopped is ctx, ended also by the process's stop.
func (d Deps) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if d.Stopping == nil {
		return ctx, cancel
	}
	detach := context.AfterFunc(d.Stopping, cancel)
	return ctx, func() { detach(); cancel() }
}

func (d Deps) database(name string) (database.Database, bool) {
	for _, db := range d.Databases {
		if db.Name == name {
			return db, true
		}
	}
	return database.Database{}, false
}

// Pass says which pass is to run.
type Pass struct {
	// Database is the configured name of the one that it serves.
	Database string
	// Args are the arguments as JSON, complete and of the declared types. Kinds that have
	// none beside the database do not look at them.
	Args json.RawMessage
}

// Job is one kind as command line and status know it.
type Job struct {
	Kind string
	// Queue is River's; there is one per kind.
	Queue string
	// Schedule is empty for a kind whose jobs another one inserts: it has no ticks, no
	// subscription and no lease of the whole kind, and ArgsOf, Subscription and LeaseKey
	// are nil.
	Schedule string
	Cron     config.Schedule
	// MaxWorkers bounds the kind's jobs that one process works on at once; 0 stands for
	// jobs.max_workers.
	MaxWorkers int
	// Args are the types of the arguments, Defaults their values where they are left out,
	// for enqueue by SQL.
	Args        map[string]string
	Defaults    map[string]any
	MaxAttempts int
	// Row is the row that an argument names, which must exist for enqueue to accept a
	// job.
	Row migrate.Row
	// Summary says in one line what the job does.
	Summary string
	// DeletionTable is where its work waits, in the tracked tables' schema.
	DeletionTable string
	// Wakes are the tables of that schema whose rows wake the kind, which fills in schema
	// and kind. None stands for every new row of DeletionTable.
	Wakes []triggers.Wake
	// LimitedByTick reports that a pass which met its limits leaves the rest to the next
	// tick.
	LimitedByTick bool
	// Databases are the configured names of the databases that it serves, each in passes
	// of its own.
	Databases []string
	// ArgsOf are the arguments of a pass for one of them.
	ArgsOf func(database string) river.JobArgs
	// Subscription wakes it up in one of them.
	Subscription func(deps Deps, db database.Database) *listen.Subscription
	// LeaseKey names the lease of the kind's passes for one database.
	LeaseKey func(database string) string
	// Check, if set, compares the configuration of the kind with a database that it serves.
	Check func(ctx context.Context, c *config.Config, db database.Database) (problem.List, error)
	// Run runs one pass in the foreground.
	Run func(ctx context.Context, deps Deps, pass Pass) (jobrun.Report, error)

	// entries, if set, are the kind's definitions or lists, one line each; listsOf is the
	// kind whose lists it works with.
	entries func([]definitions.Definition) []string
	listsOf string
	// register adds the kind's worker.
	register func(workers *river.Workers, deps Deps)
}

// wakesIn returns what wakes the kind, in a schema.
func (j Job) wakesIn(schema string) []triggers.Wake {
	wakes := slices.Clone(j.Wakes)
	if len(wakes) == 0 {
		wakes = []triggers.Wake{{Table: j.DeletionTable}}
	}
	for i := range wakes {
		wakes[i].Schema, wakes[i].Kind = cmp.Or(wakes[i].Schema, schema), j.Kind
	}
	return wakes
}

// Inserted reports that another kind inserts the jobs: there is no schedule.
func (j Job) Inserted() bool { return j.Schedule == "" }

// Jobs lists the kinds whose component is enabled, in the order in which they are shown.
func Jobs(c *config.Config) []Job {
	var jobs []Job
	for _, family := range families(c) {
		if c.Has(family.component) {
			jobs = append(jobs, family.jobs()...)
		}
	}
	return jobs
}

// ComponentOf is the component that a kind belongs to, be it enabled or not; "" if there
// is no such kind.
func ComponentOf(c *config.Config, kind string) string {
	for _, family := range families(c) {
		if slices.ContainsFunc(family.jobs(), func(job Job) bool { return job.Kind == kind }) {
			return family.component
		}
	}
	return ""
}

// family is a component with its kinds.
type family struct {
	component string
	jobs      func() []Job
}

func families(c *config.Config) []family {
	return []family{
		{migrate.LooseForeignKeys, func() []Job { return []Job{looseForeignKeys(c).job(c)} }},
		{migrate.GhostUsers, func() []Job { return []Job{ghostUsers(c).job(c)} }},
		{migrate.PlaceholderUsers, func() []Job {
			return []Job{
				placeholderCleanup(c).job(c),
				deletePlaceholder(c).job(c),
			}
		}},
		{migrate.AdjournedGroups, func() []Job { return []Job{adjournedGroups(c).job(c), groupDestroy(c).job(c)} }},
		{migrate.ExternalDiffs, func() []Job { return []Job{scheduleDiffs(c).job(c), migrateDiff(c).job(c)} }},
		{"retention", func() []Job { return []Job{retentionCleanup(c).job(c)} }},
	}
}

// Register adds the workers of all enabled kinds.
func Register(workers *river.Workers, deps Deps) {
	for _, job := range Jobs(deps.Config) {
		job.register(workers, deps)
	}
}

// TablesOfKinds are the deletion tables of the enabled kinds.
func TablesOfKinds(c *config.Config) map[string]string {
	tables := map[string]string{}
	for _, job := range Jobs(c) {
		tables[job.Kind] = job.DeletionTable
	}
	return tables
}

// DeletionTables are those of the enabled kinds, by database.
func DeletionTables(c *config.Config) map[string][]string {
	tables := map[string][]string{}
	for _, job := range Jobs(c) {
		for _, name := range job.Databases {
			tables[name] = append(tables[name], job.DeletionTable)
		}
	}
	if c.Has(migrate.ExternalDiffs) {
		tables[c.Jobs.Database] = append(tables[c.Jobs.Database], extdiff.RemovalTable)
	}
	return tables
}
