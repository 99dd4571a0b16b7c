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

// Component describes one family of jobs. All fields but Key, Units and Backlog are
// optional.
type Component struct {
	// Key is the name of the component in configuration, migrations and grants.
	Key string
	// Enabled reports whether the configuration enables the component. If it is nil, the
	// configuration key enabled of the component decides.
	Enabled func(*config.Config) bool
	// Everywhere reports that the component works in all databases, and that one check of
	// the phase Binding covers all of them.
	Everywhere bool
	// Units holds the word for one row of each deletion table.
	Units map[string]string
	// Backlog reads the pending rows in one database.
	Backlog func(context.Context, Source, database.Database) ([]Backlog, error)
	// Gauges returns the metrics of a backlog that only this component has.
	Gauges func(Backlog) []metrics.Sample
	// Failures lists the failed rows.
	Failures *Failures
	// Plan holds the planner of each scheduled kind of job.
	Plan map[string]Planner
	// Checks are the checks of doctor for this component.
	Checks []Check
	// Grants returns the application tables of one database that the worker uses.
	Grants func(Granting) []migrate.TableGrant
	// Measure adds the label values of the component to the metrics.
	Measure func(*metrics.Options)
	// Start, if set, is called when a worker starts.
	Start func(context.Context, *installation.Connections) error
}

// Source holds the connections for reading a backlog.
type Source struct {
	*installation.Connections

	// Defined returns the parents that have a definition in a database, or nil if the
	// definitions are unknown.
	Defined func(context.Context, database.Database) ([]string, error)
}

// Granting is the database for which privileges are granted, with its configuration.
type Granting struct {
	Config      *config.Config
	Database    config.Database
	Definitions []definitions.Definition
}

// On reports whether the configuration enables the component.
func (c *Component) On(settings *config.Config) bool {
	if c.Enabled != nil {
		return c.Enabled(settings)
	}
	return settings.Has(c.Key)
}

// In reports whether the component is enabled and works in a database.
func (c *Component) In(settings *config.Config, database string) bool {
	return c.On(settings) && (database == settings.Jobs.Database || c.Everywhere ||
		slices.Contains(settings.ComponentsIn(database), c.Key))
}

// Phase is a part of a run of doctor. A check runs in one phase.
type Phase int

// These constants are the phases in order. Binding checks run in the jobs database, or
// once for all databases if Everywhere is set. Schema checks run after the check of
// Sexton's schema, and Work checks after the checks of the server. Schema and Work checks
// run in each database in which the component works.
const (
	Binding Phase = iota
	Schema
	Work
)

// Check is one check of doctor.
type Check struct {
	Name string
	When Phase
	// Needs reports whether the check can run. If it is nil, a check of the phase Work
	// needs an installed schema, and checks of other phases always run.
	Needs func(*Exam) bool
	Look  func(context.Context, *Exam) ([]doctor.Finding, error)
}

// Exam is the state of one run of doctor, with the reachable databases.
type Exam struct {
	*installation.Connections

	// DB is the database that is checked. It has no pool in the phase Binding of a
	// component with Everywhere, or if the jobs database cannot be reached.
	DB database.Database
	// Roles are the roles whose privileges are checked, by database.
	Roles map[string]doctor.Role
	// Installed reports that the schema of DB fits this program.
	Installed bool
	// Definitions are the loose foreign keys. Complete reports that all definitions could
	// be read.
	Definitions []definitions.Definition
	Complete    bool
	// Parents are the bound parents by database. They are complete only if Bound is set.
	Parents map[string][]*loosefk.Parent
	Bound   bool
}

// As returns the checked database with the role whose privileges are checked.
func (x *Exam) As() pgcatalog.As {
	return pgcatalog.As{Beginner: x.DB.Pool, Role: x.Roles[x.DB.Name].Name}
}

// Planned is the expected work of a kind of job. Counts are at most PendingCap.
type Planned struct {
	// Due counts the rows that are due for the kind of job. If another kind inserts its
	// jobs, it counts due jobs. Capped reports that there may be more.
	Due    int64 `json:"due"`
	Capped bool  `json:"due_capped"`
	// PerRun limits the rows of one pass. 0 means no limit.
	PerRun int `json:"per_run,omitempty"`
	// RemovalsDue counts objects that the pass would remove from the store.
	RemovalsDue int64 `json:"removals_due,omitempty"`
	// NextDueAt is the time at which the next row becomes due, or nil.
	NextDueAt *time.Time `json:"next_due_at"`
	// Details are specific to the component.
	Details Details `json:"details,omitempty"`
}

// Planner counts the rows that a pass of one kind of job would process.
type Planner func(ctx context.Context, on dbsqlc.DBTX, c *config.Config, db database.Database) (Planned, error)

// Counting returns a Planner that evaluates two SQL expressions: the number of due rows,
// and the seconds until the next row becomes due, or 0. settings, if set, returns PerRun
// and the arguments of the expressions.
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

// CountRemovals sets RemovalsDue from two SQL expressions: the number of due objects, and
// the seconds until the next one becomes due, or 0.
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
		return 0, fmt.Errorf("count due rows: %w", err)
	}
	if seconds > 0 {
		p.NextDueAt = new(time.Now().Add(time.Duration(seconds * float64(time.Second))).UTC().Truncate(time.Second))
	}
	p.Capped = p.Capped || due > PendingCap
	return min(due, PendingCap), nil
}

// waitingJobs holds the two SQL expressions of Counting for the jobs of kind $1: the
// number of due jobs, and the seconds until the next job is due.
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

// PlanJobs returns a Planner that counts the due jobs of a kind. It is for kinds whose
// jobs another kind inserts.
func PlanJobs(kind string) Planner {
	return Counting(waitingJobs, func(*config.Config) (int, []any) { return 0, []any{kind} })
}
