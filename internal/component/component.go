package component

import (
	"context"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/doctor"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
)

// Component is one family of jobs. All but Key, Units and Backlog may be missing.
type Component struct {
	// Key names it in configuration, migrations and grants.
	Key string
	// Enabled reports whether the configuration enables it; nil: its key says so.
	Enabled func(*config.Config) bool
	// Everywhere reports that it works in every database, and not in the jobs database alone.
	Everywhere bool
	// Units name one row of each of its deletion tables.
	Units map[string]string
	// Backlog reads what waits in one database.
	Backlog func(context.Context, Place, database.Database) ([]Backlog, error)
	// Left reads what waits although the component is disabled, in the jobs database.
	Left func(context.Context, database.Database) ([]Backlog, error)
	// Gauges are the metrics of a backlog beside those of every deletion table.
	Gauges func(Backlog) []metrics.Sample
	// Failures are the rows that failed.
	Failures *Failures
	// Plan counts what a pass of one of its kinds would do now, for kinds with a schedule. It only reads.
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

// Place is where a backlog is read.
type Place struct {
	*installation.Connections

	// Defined returns the parents that definitions name in a database; nil where that cannot be told.
	Defined func(context.Context, database.Database) ([]string, error)
}

// Granting is the database that rights are granted in, with what the configuration says of it.
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
	return c.On(settings) && (c.Everywhere || database == settings.Jobs.Database)
}

// Phase is when doctor makes a check.
type Phase int

// The phases. Binding comes first, in the jobs database or, for a component that works everywhere, once for all. Schema comes when it is
// known whether the database's schema fits, Work after all that concerns the server, both only where the component works. Disabled is for a
// component that is not enabled; it is reported only where it finds something.
const (
	Binding Phase = iota
	Schema
	Work
	Disabled
)

// Check is one of doctor's.
type Check struct {
	Name string
	When Phase
	// Needs reports whether the check can be made; nil stands for always in the phases Binding and Schema, and for an installed schema in Work.
	Needs func(*Exam) bool
	Look  func(context.Context, *Exam) ([]doctor.Finding, error)
}

// Exam is one run of doctor, of which the databases are the reachable ones.
type Exam struct {
	*installation.Connections

	// DB is the database that is looked at. It has no pool while a component that works everywhere binds, nor where the jobs database cannot
	// be reached.
	DB database.Database
	// Installed reports that the schema of DB fits this program.
	Installed bool
	// Definitions are those of the loose foreign keys; Whole reports that all could be read.
	Definitions []definitions.Definition
	Whole       bool
	// Parents are by the name of their database; complete only where Bound reports so.
	Parents map[string][]*loosefk.Parent
	Bound   bool
	// Passed has the names of the checks that found nothing.
	Passed map[string]bool
}
