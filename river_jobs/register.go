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
	// Databases are the connected databases, in the configured order.
	Databases []database.Database
	// Definitions are the loose foreign keys.
	Definitions []definitions.Definition
	Runner      *jobrun.Runner
	Bindings    *Bindings
	Logger      *slog.Logger
	// RiverLogger is the logger for River. Nil means Logger.
	RiverLogger *slog.Logger
	// Working, if set, is called before each job. The returned function is called when
	// the job has ended.
	Working func(id int64) (done func())
	// Stopping, if set, ends when the process must stop. Passes then end after the
	// running batch.
	Stopping context.Context //nolint:containedctx // one for the process, besides the context of each job
}

// jobsDB returns the database with the jobs, leases and history.
func (d Deps) jobsDB() database.Database { return d.Runner.Leases.Jobs }

// timeouts returns the limits of statements on application tables.
func (d Deps) timeouts() batch.Limits {
	return batch.Limits{StatementTimeout: d.Config.Jobs.StatementTimeout, LockTimeout: d.Config.Jobs.LockTimeout}
}

// untilStopped returns a context that ends with ctx or when the process must stop.
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

// Pass describes a pass to run outside River.
type Pass struct {
	// Database is the configured name of the database.
	Database string
	// Args are the arguments as JSON, complete and of the declared types. Kinds with a
	// schedule ignore them.
	Args json.RawMessage
}

// Job describes one kind to the command line and status.
type Job struct {
	Kind string
	// Queue is the name of River's queue. Each kind has its own.
	Queue string
	// Schedule is the cron expression. It is "" for a kind whose jobs another kind
	// inserts. Such a kind has no ticks, and its ArgsOf, Subscription and LeaseKey are
	// nil.
	Schedule string
	Cron     config.Schedule
	// MaxWorkers limits the number of jobs of the kind that one process runs in parallel.
	// 0 means jobs.max_workers.
	MaxWorkers int
	// Args are the types of the arguments by name, and Defaults are the values of omitted
	// arguments. The SQL function enqueue reads them.
	Args        map[string]string
	Defaults    map[string]any
	MaxAttempts int
	// Row describes the row whose key is an argument. The SQL function enqueue fails if
	// the row does not exist.
	Row migrate.Row
	// Summary is a description of the job in one line.
	Summary string
	// DeletionTable is the table with the kind's pending rows.
	DeletionTable string
	// Wakes are the tables whose rows wake the kind. An empty schema means the schema of
	// tracked tables. If Wakes is empty, each new row of DeletionTable wakes the kind.
	Wakes []triggers.Wake
	// LimitedByTick is true if, after a pass has reached its limits, only the next tick
	// continues the work.
	LimitedByTick bool
	// Databases are the configured names of the databases that the kind serves. Each
	// database has its own passes.
	Databases []string
	// ArgsOf returns the arguments of a pass for a database.
	ArgsOf func(database string) river.JobArgs
	// Subscription returns the subscription that wakes the kind in a database.
	Subscription func(deps Deps, db database.Database) *listen.Subscription
	// LeaseKey returns the key of the lease of passes for a database.
	LeaseKey func(database string) string
	// Check, if set, compares the configuration of the kind with a database.
	Check func(ctx context.Context, c *config.Config, db database.Database) (problem.List, error)
	// Run runs one pass outside River.
	Run func(ctx context.Context, deps Deps, pass Pass) (jobrun.Report, error)

	// entries, if set, returns the kind's definitions or lists, one line each. listsOf is
	// the kind whose lists this kind uses.
	entries func([]definitions.Definition) []string
	listsOf string
	// register adds the kind's worker.
	register func(workers *river.Workers, deps Deps)
}

// wakesIn returns the tables that wake the kind. It replaces an empty schema with the
// given schema of tracked tables.
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

// Inserted reports whether another kind inserts the kind's jobs.
func (j Job) Inserted() bool { return j.Schedule == "" }

// Jobs returns the kinds of the enabled components, in the order of display.
func Jobs(c *config.Config) []Job {
	var jobs []Job
	for _, family := range families(c) {
		if c.Has(family.component) {
			jobs = append(jobs, family.jobs()...)
		}
	}
	return jobs
}

// ComponentOf returns the component of a kind, even if it is not enabled, or "" if the
// kind is unknown.
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

// TablesOfKinds returns the deletion table of each enabled kind.
func TablesOfKinds(c *config.Config) map[string]string {
	tables := map[string]string{}
	for _, job := range Jobs(c) {
		tables[job.Kind] = job.DeletionTable
	}
	return tables
}

// DeletionTables returns the deletion tables of the enabled kinds, by database.
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
