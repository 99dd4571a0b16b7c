package operator

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"sexton/internal/component"
	"sexton/internal/components"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/pgschema"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// Examination is one run of doctor. Its databases are the reachable ones.
type Examination struct {
	component.Exam

	Report *doctor.Report
	// Unreachable is the first error of a connection.
	Unreachable error
	// undirected are the databases that their listen_url does not lead to.
	undirected map[string]bool
	// servers are where the databases are, by name.
	servers map[string]installation.Server
}

// Examine makes all checks. Close it at the end.
func Examine(ctx context.Context, c *config.Config) *Examination {
	x := &Examination{Report: doctor.NewReport(), undirected: map[string]bool{}}
	x.Connections, x.Passed = &installation.Connections{Config: c}, map[string]bool{}
	x.Report.Run(ctx, "definitions", "", func(context.Context) ([]doctor.Finding, error) {
		defs, err := installation.LoadDefinitions(c)
		problems, _ := errors.AsType[problem.List](err)
		x.Definitions, x.Whole = defs, len(problems) == 0
		return doctor.Findings(problems), nil
	})
	for _, settings := range c.Databases {
		x.Unreachable = cmp.Or(x.Unreachable, x.connect(ctx, settings))
	}
	x.bind(ctx)
	x.findServers(ctx)
	schemas := x.Schemas()
	for i, db := range x.Databases {
		x.examineDatabase(ctx, db, schemas[i])
	}
	for _, settings := range c.Databases {
		if x.Database(settings.Name).Pool == nil {
			x.skip(settings.Name)
		}
	}
	return x
}

// jobsChecks are the checks that the jobs database alone has.
func jobsChecks() []string { return []string{"workers", "schedules", "pauses", "stalled_jobs", "cron"} }

// skip notes the checks that are not made of a database that cannot be reached.
func (x *Examination) skip(name string) {
	x.Report.Skip(name, "schema", "owner")
	x.checks(name, component.Schema, func(_ *component.Component, check component.Check) { x.Report.Skip(name, check.Name) })
	if x.hasGenerations(name) {
		x.Report.Skip(name, "generations")
	}
	doctor.Skip(x.Report, name)
	x.checks(name, component.Work, func(_ *component.Component, check component.Check) { x.Report.Skip(name, check.Name) })
	if name == x.Config.Jobs.Database {
		x.Report.Skip(name, jobsChecks()...)
	}
}

// checks are those of the components that work in a database, of one phase.
func (x *Examination) checks(name string, phase component.Phase, do func(*component.Component, component.Check)) {
	for _, one := range components.All() {
		if one.On(x.Config) == (phase == component.Disabled) || name != x.Config.Jobs.Database && !one.Everywhere {
			continue
		}
		for _, check := range one.Checks {
			if check.When == phase {
				do(one, check)
			}
		}
	}
}

// run makes a check of a component, unless it has nothing to look at.
func (x *Examination) run(ctx context.Context, check component.Check, database string, may bool) {
	if check.Needs != nil {
		may = check.Needs(&x.Exam)
	}
	if !may {
		x.Report.Skip(database, check.Name)
		return
	}
	x.Passed[check.Name] = x.Report.Run(ctx, check.Name, database, func(ctx context.Context) ([]doctor.Finding, error) { return check.Look(ctx, &x.Exam) })
}

// bind holds the configuration of the components against the databases.
func (x *Examination) bind(ctx context.Context) {
	for _, one := range components.Enabled(x.Config) {
		name := x.Config.Jobs.Database
		x.DB = x.Database(name)
		if one.Everywhere {
			x.DB = database.Database{}
			if len(x.Config.Databases) > 1 {
				name = ""
			}
		}
		for _, check := range one.Checks {
			if check.When == component.Binding {
				x.run(ctx, check, name, x.DB.Pool != nil)
			}
		}
	}
}

// connect opens a database. Where only its listen_url is wrong, everything else is still worth a look.
func (x *Examination) connect(ctx context.Context, settings config.Database) (failed error) {
	names := pgschema.Names{Jobs: x.Config.Jobs.Schema, Tracked: settings.Schema, Path: settings.TriggerPath()}
	open := func(direct string) error {
		db, err := database.Open(ctx, settings.Name, string(settings.URL), direct, names, 2)
		switch {
		case err == nil:
			x.Databases = append(x.Databases, db)
		case db.Pool != nil:
			db.Close()
		}
		return err
	}
	x.Report.Run(ctx, "connection", settings.Name, func(context.Context) ([]doctor.Finding, error) {
		direct := string(settings.ListenURL)
		err := open(direct)
		if err == nil {
			return nil, nil
		}
		failed = installation.Located(x.Config, err)
		found := []doctor.Finding{unconnected(err)}
		if direct != "" && strings.HasSuffix(found[0].Object, ".listen_url") {
			x.undirected[settings.Name] = true
			if err := open(""); err != nil {
				found = append(found, unconnected(err))
			}
		}
		return found, nil
	})
	return failed
}

// unconnected words why a database does not open.
func unconnected(err error) doctor.Finding {
	var settings *database.SettingsError
	var unreachable *database.UnreachableError
	switch {
	case errors.As(err, &settings):
		return doctor.Finding{
			Severity: problem.Error, Object: "databases." + settings.Database + "." + settings.Key,
			Message: "the connection string cannot be parsed", Fix: "look at its parameters",
		}
	case errors.As(err, &unreachable):
		return doctor.Finding{
			Severity: problem.Error, Object: "databases." + unreachable.Database + "." + unreachable.Key,
			Message: "the database cannot be reached: " + unreachable.Reason, Fix: unreachable.Fix,
		}
	}
	return doctor.Finding{Severity: problem.Error, Message: err.Error(), Fix: "look at the connection string"}
}

func (x *Examination) examineDatabase(ctx context.Context, db database.Database, schema migrate.Database) {
	x.DB = db
	x.Installed = x.Report.Run(ctx, "schema", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return schemaFindings(ctx, schema) })
	if x.Installed {
		x.Report.Run(ctx, "owner", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return ownerFindings(ctx, schema) })
	} else {
		x.Report.Skip(db.Name, "owner")
	}
	x.checks(db.Name, component.Schema, func(_ *component.Component, check component.Check) { x.run(ctx, check, db.Name, true) })
	x.examineGenerations(ctx)
	target := x.target(schema)
	doctor.Examine(ctx, x.Report, target)
	x.work(ctx, true)
	switch {
	case schema.Jobs && x.Installed:
		x.examineJobs(ctx, target)
	case schema.Jobs:
		x.Report.Skip(db.Name, jobsChecks()...)
	}
}

// work makes the checks of what waits, of components that work everywhere or of the others.
func (x *Examination) work(ctx context.Context, everywhere bool) {
	x.checks(x.DB.Name, component.Work, func(one *component.Component, check component.Check) {
		if one.Everywhere == everywhere {
			x.run(ctx, check, x.DB.Name, x.Installed)
		}
	})
}

// examineJobs makes the checks that the jobs database alone has.
func (x *Examination) examineJobs(ctx context.Context, target doctor.Target) {
	workers := doctor.Workers{Target: target, Silence: x.Config.Jobs.Silence}
	// Unreachable databases have their turns, too.
	rotation := make([]database.Database, len(x.Config.Databases))
	for i, settings := range x.Config.Databases {
		rotation[i].Name = settings.Name
	}
	ticks, err := riverjobs.Ticks(riverjobs.Deps{Config: x.Config, Databases: rotation})
	for _, t := range ticks {
		workers.Schedules = append(workers.Schedules, doctor.Schedule{Kind: t.Kind, Database: t.Database, Times: t.Schedule})
	}
	doctor.ExamineWorkers(ctx, x.Report, workers)
	x.work(ctx, false)
	x.checks(x.DB.Name, component.Disabled, func(_ *component.Component, check component.Check) {
		found, err := check.Look(ctx, &x.Exam)
		if err != nil || len(found) > 0 {
			x.Report.Run(ctx, check.Name, x.DB.Name, func(context.Context) ([]doctor.Finding, error) { return found, err })
		}
	})
	x.Report.Run(ctx, "pauses", x.DB.Name, func(ctx context.Context) ([]doctor.Finding, error) {
		found, paused := x.pauses(ctx)
		return found, cmp.Or(err, paused)
	})
	x.Report.Run(ctx, "stalled_jobs", x.DB.Name, x.stalledJobs)
	x.Report.Run(ctx, "cron", x.DB.Name, x.unled)
}

// target collects what the checks of a database have to know of the rest of the program.
func (x *Examination) target(schema migrate.Database) doctor.Target {
	t := doctor.Target{
		Database: x.DB, Installed: x.Installed, Undirected: x.undirected[x.DB.Name], Grants: grantsOf(schema), Connections: x.mostConnections(),
		Server: x.share(func(s installation.Server) bool { return s.ID == x.servers[x.DB.Name].ID }),
		Role:   x.share(func(s installation.Server) bool { return s == x.servers[x.DB.Name] }),
	}
	if x.Bound {
		t.Parents = []doctor.Parent{}
		for _, parent := range x.Parents[x.DB.Name] {
			t.Parents = append(t.Parents, doctor.Parent{Schema: parent.Schema, Table: parent.Name, Recorded: parent.Recorded})
		}
	}
	return t
}
