package components

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/definitions"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/plan"
	"sexton/internal/metrics"
	"sexton/internal/migrate"
	"sexton/internal/problem"
)

// all lists the components in the order of display.
var all = []*Component{ //nolint:gochecknoglobals // a test adds one; nothing else changes it
	looseForeignKeys(), ghostUsers(), placeholderUsers(), adjournedGroups(), externalDiffs(), retentionRules(),
}

// Enabled returns the enabled components.
func Enabled(c *config.Config) []*Component {
	return slices.DeleteFunc(slices.Clone(all), func(one *Component) bool { return !one.On(c) })
}

// Unit returns the word for one row of a deletion table.
func Unit(table string) string {
	for _, one := range all {
		if unit := one.Units[table]; unit != "" {
			return unit
		}
	}
	return "row"
}

// Backlogs reads the backlogs of all enabled components that work in a database.
func Backlogs(ctx context.Context, source Source, db database.Database) ([]Backlog, error) {
	return read(ctx, source, []database.Database{db})
}

// AllBacklogs reads the backlogs of all enabled components in all databases. It groups
// them by component.
func AllBacklogs(ctx context.Context, source Source) ([]Backlog, error) {
	return read(ctx, source, source.Databases)
}

func read(ctx context.Context, source Source, databases []database.Database) ([]Backlog, error) {
	found := []Backlog{}
	for _, one := range all {
		for _, db := range databases {
			var tables []Backlog
			var err error
			switch down := source.Down[db.Name]; {
			case !one.In(source.Config, db.Name):
			case down != nil:
				for table := range one.Units {
					tables = append(tables, Backlog{Table: table, Database: db.Name, Unreachable: down.Error()})
				}
			default:
				tables, err = one.Backlog(ctx, source, db)
			}
			if err != nil {
				return nil, fmt.Errorf("read the backlog of database %s: %w", db.Name, err)
			}
			for _, table := range tables {
				table.Unit = Unit(table.Table)
				found = append(found, table)
			}
		}
	}
	return found, nil
}

// Gauges returns the metrics that a component adds for its backlog.
func Gauges(b Backlog) []metrics.Sample {
	for _, one := range all {
		if one.Units[b.Table] != "" && one.Gauges != nil {
			return one.Gauges(b)
		}
	}
	return nil
}

// Measure adds the label values of the enabled components to the metrics.
func Measure(c *config.Config, o *metrics.Options) {
	for _, one := range Enabled(c) {
		if one.Measure != nil {
			one.Measure(o)
		}
	}
}

// Plan counts the rows that a pass of a kind of job would process. It changes nothing.
func Plan(ctx context.Context, on dbsqlc.DBTX, c *config.Config, db database.Database, kind string) (Planned, error) {
	for _, one := range all {
		if planner := one.Plan[kind]; planner != nil {
			return planner(ctx, on, c, db)
		}
	}
	return PlanJobs(kind)(ctx, on, c, db)
}

// Start calls the function Start of each enabled component, for a new worker.
func Start(ctx context.Context, on *installation.Connections) error {
	for _, one := range Enabled(on.Config) {
		if one.Start == nil {
			continue
		}
		if err := one.Start(ctx, on); err != nil {
			return err
		}
	}
	return nil
}

const (
	readsRows   = "SELECT"
	changesRows = "SELECT, UPDATE"
	// deletesRows includes UPDATE, because a row is locked before it is deleted.
	deletesRows  = "SELECT, UPDATE, DELETE"
	restoresRows = "SELECT, INSERT"
)

// Grants returns the application tables of one database that the worker uses. The tables
// may not exist.
func Grants(g Granting) (list []migrate.TableGrant) {
	for _, one := range all {
		if !one.In(g.Config, g.Database.Name) || one.Grants == nil {
			continue
		}
		for _, grant := range one.Grants(g) {
			if !slices.Contains(list, grant) {
				list = append(list, grant)
			}
		}
	}
	return list
}

// grants collects the tables that one component uses.
type grants struct {
	schema string
	list   []migrate.TableGrant
}

func (t *grants) quoted(name definitions.Name) string {
	if name.Schema == "" {
		name.Schema = t.schema
	}
	return pgx.Identifier{name.Schema, name.Table}.Sanitize()
}

func (t *grants) add(name definitions.Name, privileges string) {
	t.list = append(t.list, migrate.TableGrant{Table: t.quoted(name), Privileges: privileges})
}

// named adds a table by its name in the configuration. It ignores an invalid name, which
// config check reports.
func (t *grants) named(text, privileges string) {
	if name, err := definitions.ParseName(text); err == nil {
		t.add(name, privileges)
	}
}

func (t *grants) below(name definitions.Name, referring string) {
	t.list = append(t.list, migrate.TableGrant{Table: t.quoted(name), Privileges: deletesRows, Referring: referring})
}

// PlanLimits returns limits that keep a plan short even if the backlog is large.
func PlanLimits() plan.Limits {
	return plan.Limits{Tombstones: PendingCap, Rows: 100_000, StatementTimeout: 5 * time.Second}
}

// PlanSites returns the databases with their bound parents for a plan. Unreachable
// databases have no connection.
func PlanSites(all *installation.Connections, parents map[string][]*loosefk.Parent) []plan.Site {
	sites := make([]plan.Site, len(all.Databases))
	for i, db := range all.Databases {
		sites[i] = plan.Site{Name: db.Name, Names: db.Names, Parents: parents[db.Name]}
		if all.Down[db.Name] == nil {
			sites[i].DB = db.Pool
		}
	}
	return sites
}

// MissingIndexes returns a problem for each index that cleanups in one database lack.
func MissingIndexes(ctx context.Context, all *installation.Connections, db database.Database,
	parents map[string][]*loosefk.Parent,
) (problem.List, error) {
	sites := PlanSites(all, parents)
	for _, site := range sites {
		if site.Name == db.Name {
			return plan.MissingIndexes(ctx, site, sites, PlanLimits().StatementTimeout)
		}
	}
	return nil, nil
}

// WithoutIndexes omits the problems that MissingIndexes reports more precisely.
func WithoutIndexes(problems problem.List) (others problem.List) {
	for _, p := range problems {
		if !strings.HasPrefix(p.Fix, "CREATE INDEX ") && !strings.HasPrefix(p.Fix, "REINDEX INDEX ") &&
			!strings.HasPrefix(p.Fix, "index each partition") {
			others.Add(p)
		}
	}
	return others
}
