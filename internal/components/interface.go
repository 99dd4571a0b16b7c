package components

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/definitions"
	"sexton/internal/doctor"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
)

// Component is one family of jobs. All but Key, Units and Backlog may be missing.
type Component struct {
	// Key names it in configuration, migrations and grants.
	Key string
	// Enabled reports whether the configuration enables it; nil: its key says so.
	Enabled func(*config.Config) bool
	// Everywhere reports that one check of the phase Binding covers all databases.
	Everywhere bool
	// Units name one row of each of its deletion tables.
	Units map[string]string
	// Backlog reads what waits in one database.
	Backlog func(context.Context, Source, database.Database) ([]Backlog, error)
	// Gauges are the metrics of a backlog beside those of every deletion table.
	Gauges func(Backlog) []metrics.Sample
	// Failures are the rows that failed.
	Failures *Failures
	// Plan counts what a pass of one of its kinds would do now, for kinds with a
	// schedule. It only reads.
	Plan map[string]Planner
	// Checks are doctor's.
	Checks []Check
	// Grants are the application's tables of one database that the worker works on.
	Grants func(Granting) []migrate.TableGrant
	// Measure tells the metrics which values of labels there are.
	Measure func(*metrics.Options)
	// Start runs once when a worker starts.
	Start func(context.Context, *installation.Connections) error
}

// Source is where a backlog is read from.
type Source struct {
	*installation.Connections

	// Defined returns the parents that definitions name in a database; nil where that
	// cannot be told.
	Defined func(context.Context, database.Database) ([]string, error)
}

// Granting is the database that rights are granted in, with what the configuration says
// of it.
type Granting struct {
	Config      *config.Config
	Database    config.Database
	Definitions []definitions.Definition
}

// On reports whether the configuration enables it.
func (c *Component) On(settings *config.Config) bool {
	if c.Enabled != nil {
		return c.Enabled(settings)
	}
	return settings.Has(c.Key)
}

// In reports whether the enabled component works in a database.
func (c *Component) In(settings *config.Config, database string) bool {
	return c.On(settings) && (database == settings.Jobs.Database || c.Everywhere ||
		slices.Contains(settings.ComponentsIn(database), c.Key))
}

// Phase is when doctor makes a check.
type Phase int

// The phases. Binding comes first, in the jobs database or, for a component that works
// everywhere, once for all. Schema comes when it is known whether the database's schema
// fits, Work after all that concerns the server, both only where the component works.
const (
	Binding Phase = iota
	Schema
	Work
)

// Check is one of doctor's.
type Check struct {
	Name string
	When Phase
	// Needs reports whether the check can be made; nil stands for always in the phases
	// Binding and Schema, and for an installed schema in Work.
	Needs func(*Exam) bool
	Look  func(context.Context, *Exam) ([]doctor.Finding, error)
}

// Exam is one run of doctor, of which the databases are the reachable ones.
type Exam struct {
	*installation.Connections

	// DB is the database that is looked at. It has no pool while a component that works
	// everywhere binds, nor where the jobs database cannot be reached.
	DB database.Database
	// Roles are the ones whose rights are checked, by database.
	Roles map[string]doctor.Role
	// Installed reports that the schema of DB fits this program.
	Installed bool
	// Definitions are those of the loose foreign keys; Whole reports that all could be
	// read.
	Definitions []definitions.Definition
	Whole       bool
	// Parents are by the name of their database; complete only where Bound reports so.
	Parents map[string][]*loosefk.Parent
	Bound   bool
}

// As returns the database with the role whose privileges are checked.
func (x *Exam) As() pgcatalog.As {
	return pgcatalog.As{Beginner: x.DB.Pool, Role: x.Roles[x.DB.Name].Name}
}

// Planned foresees the work of a kind. Counts stop at PendingCap.
type Planned struct {
	// Due counts the rows that a pass may take now, by the predicate that wakes it; for
	// kinds whose jobs another one inserts, the jobs whose time has come. Capped reports
	// that there are more, or may be.
	Due    int64 `json:"due"`
	Capped bool  `json:"due_capped"`
	// PerRun is how many of them one pass takes at most; 0 where only its time bounds it.
	PerRun int `json:"per_run,omitempty"`
	// RemovalsDue counts objects that the pass would remove from the store.
	RemovalsDue int64 `json:"removals_due,omitempty"`
	// NextDueAt is the time when the next one falls due that is not yet; nil where none
	// does.
	NextDueAt *time.Time `json:"next_due_at"`
	// Details are of this component alone.
	Details Details `json:"details,omitempty"`
}

// Planner counts what a pass of one kind would do now.
type Planner func(ctx context.Context, on dbsqlc.DBTX, c *config.Config, db database.Database) (Planned, error)

// Counting reads two expressions into Due and NextDueAt: how many are due, and in how
// many seconds the next falls due, 0 where none does. settings, if there are any, are
// PerRun and the arguments of the expressions.
func Counting(expressions string, settings func(*config.Config) (perRun int, args []any)) Planner {
	return func(ctx context.Context, on dbsqlc.DBTX, c *config.Config, db database.Database) (p Planned, err error) {
		var args []any
		if settings != nil {
			p.PerRun, args = settings(c)
		}
		p.Due, err = p.next(ctx, on, db, expressions, args...)
		return p, err
	}
}

// CountRemovals counts what goes beside the rows.
func (p *Planned) CountRemovals(ctx context.Context, on dbsqlc.DBTX, db database.Database, expressions string) error {
	var err error
	p.RemovalsDue, err = p.next(ctx, on, db, expressions)
	return err
}

func (p *Planned) next(ctx context.Context, on dbsqlc.DBTX, db database.Database, expressions string,
	args ...any,
) (due int64, err error) {
	var seconds float64
	if err := on.QueryRow(ctx, db.Names.Render("SELECT "+expressions), args...).Scan(&due, &seconds); err != nil {
		return 0, fmt.Errorf("count what is due: %w", err)
	}
	if seconds > 0 {
		p.NextDueAt = new(time.Now().Add(time.Duration(seconds * float64(time.Second))).UTC().Truncate(time.Second))
	}
	p.Capped = p.Capped || due > PendingCap
	return min(due, PendingCap), nil
}

// waitingJobs are expressions of the jobs of the kind $1: how many wait, and in how many
// seconds the next one's time comes.
const waitingJobs = `
    (SELECT pg_catalog.count(*) FROM (
        SELECT FROM "sexton".river_job AS job
        WHERE job.queue = $1 AND job.kind = $1
          AND job.state IN ('available', 'retryable', 'scheduled')
          AND job.scheduled_at <= pg_catalog.statement_timestamp()
        LIMIT 10001
    ) AS counted),
    coalesce((
        SELECT extract(epoch FROM pg_catalog.min(job.scheduled_at) - pg_catalog.statement_timestamp())
        FROM "sexton".river_job AS job
        WHERE job.queue = $1 AND job.kind = $1
          AND job.state IN ('available', 'retryable', 'scheduled')
          AND job.scheduled_at > pg_catalog.statement_timestamp()
          AND job.scheduled_at < 'infinity'
    ), 0)::pg_catalog.float8`

// PlanJobs counts the waiting jobs of a kind that another one inserts.
func PlanJobs(kind string) Planner {
	return Counting(waitingJobs, func(*config.Config) (int, []any) { return 0, []any{kind} })
}
