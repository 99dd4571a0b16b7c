package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"sexton/internal/components"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// Examination is one run of doctor. Databases holds the reachable databases.
type Examination struct {
	components.Exam

	Report *doctor.Report
	// Unreachable is the first connection error.
	Unreachable error
}

// Examine runs all checks. It checks the privileges of role or, if role is empty, of the
// worker's role. The caller must close the result.
func Examine(ctx context.Context, c *config.Config, role string) *Examination {
	x := &Examination{Report: doctor.NewReport()}
	x.Roles = x.Report.Roles
	x.Connections = &installation.Connections{Config: c}
	x.Report.Run(ctx, "definitions", "", func(context.Context) ([]doctor.Finding, error) {
		defs, err := installation.LoadDefinitions(c)
		problems, _ := errors.AsType[problem.List](err)
		x.Definitions, x.Complete = defs, len(problems) == 0
		return doctor.Findings(problems), nil
	})
	for _, settings := range c.Databases {
		x.Unreachable = cmp.Or(x.Unreachable, x.connect(ctx, settings))
	}
	for _, settings := range c.Databases {
		db := x.Database(settings.Name)
		x.Report.RunIf(ctx, db.Pool != nil, "role", settings.Name,
			func(ctx context.Context) (found []doctor.Finding, err error) {
				x.Roles[db.Name], found, err = doctor.FindRole(ctx, db, role)
				// Skip the database, because each check of privileges would report again
				// that the role does not exist.
				if len(found) > 0 {
					delete(x.Roles, db.Name)
					x.Databases = slices.DeleteFunc(x.Databases,
						func(other database.Database) bool { return other.Name == db.Name })
					db.Close()
				}
				return found, err
			})
	}
	x.bind(ctx)
	for _, schema := range x.Schemas() {
		x.examineDatabase(ctx, x.Database(schema.Name), schema)
	}
	for _, settings := range c.Databases {
		if x.Database(settings.Name).Pool == nil {
			x.examineDatabase(ctx, database.Database{Name: settings.Name},
				migrate.Database{Jobs: settings.Name == c.Jobs.Database})
		}
	}
	return x
}

// checks calls do for each check of a phase, for the components that work in a database.
func (x *Examination) checks(name string, phase components.Phase, do func(*components.Component, components.Check)) {
	for _, one := range components.Enabled(x.Config) {
		if !one.In(x.Config, name) {
			continue
		}
		for _, check := range one.Checks {
			if check.When == phase {
				do(one, check)
			}
		}
	}
}

// runComponentCheck runs a check of a component. The check counts as skipped if it does
// not apply or if enabled is false.
func (x *Examination) runComponentCheck(ctx context.Context, check components.Check, database string, enabled bool) {
	if check.Needs != nil {
		enabled = check.Needs(&x.Exam)
	}
	x.Report.RunIf(ctx, enabled, check.Name, database, func(ctx context.Context) ([]doctor.Finding,
		error,
	) {
		return check.Look(ctx, &x.Exam)
	})
}

// runCheck runs a check of the current database. The check counts as skipped if enabled
// is false.
func (x *Examination) runCheck(ctx context.Context, enabled bool, name string,
	check func(context.Context) ([]doctor.Finding, error),
) bool {
	return x.Report.RunIf(ctx, enabled, name, x.DB.Name, check)
}

// bind compares the configuration of each component with the databases.
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
			if check.When == components.Binding {
				x.runComponentCheck(ctx, check, name, x.DB.Pool != nil)
			}
		}
	}
}

// connect opens a database. It returns the error with the position of the connection
// string.
func (x *Examination) connect(ctx context.Context, settings config.Database) (failed error) {
	x.Report.Run(ctx, "connection", settings.Name, func(context.Context) ([]doctor.Finding, error) {
		db, err := database.Open(ctx, settings.Name, string(settings.URL), string(settings.ListenURL),
			installation.NamesOf(x.Config, settings), 2)
		if err == nil {
			x.Databases = append(x.Databases, db)
			return nil, nil
		}
		if db.Pool != nil {
			db.Close()
		}
		failed = installation.Located(x.Config, err)
		return connectionFindings(err), nil
	})
	return failed
}

// connectionFindings describes why a database cannot be opened.
func connectionFindings(err error) []doctor.Finding {
	if settings, ok := errors.AsType[*database.SettingsError](err); ok {
		return doctor.One(problem.Error, "databases."+settings.Database+"."+settings.Key,
			"the connection string cannot be parsed", "correct its parameters")
	}
	if unreachable, ok := errors.AsType[*database.UnreachableError](err); ok {
		object := "databases." + unreachable.Database + "." + unreachable.Key
		return doctor.One(problem.Error, object, "the database cannot be reached: "+unreachable.Reason, unreachable.Fix)
	}
	return doctor.One(problem.Error, "", err.Error(), "check the connection string")
}

// examineDatabase runs the checks of a database. It counts them as skipped if the
// database has no pool because it cannot be reached.
func (x *Examination) examineDatabase(ctx context.Context, db database.Database, schema migrate.Database) {
	x.DB = db
	x.Installed = x.runCheck(ctx, db.Pool != nil, "schema",
		func(ctx context.Context) ([]doctor.Finding, error) { return schemaFindings(ctx, schema) })
	x.runCheck(ctx, x.Installed, "functions", func(ctx context.Context) ([]doctor.Finding,
		error,
	) {
		return functionFindings(ctx, schema)
	})
	x.runCheck(ctx, x.Installed, "owner", func(ctx context.Context) ([]doctor.Finding,
		error,
	) {
		return ownerFindings(ctx, schema)
	})
	x.checks(db.Name, components.Schema, func(_ *components.Component,
		check components.Check,
	) {
		x.runComponentCheck(ctx, check, db.Name, db.Pool != nil)
	})
	x.examineGenerations(ctx)
	target := x.target(schema)
	doctor.Examine(ctx, x.Report, target)
	x.work(ctx, true)
	if schema.Jobs {
		x.examineJobs(ctx, target)
	}
}

// work runs the checks of pending work. If everywhere is true, it runs the checks of
// components that work in every database, and otherwise those of the other components.
func (x *Examination) work(ctx context.Context, everywhere bool) {
	x.checks(x.DB.Name, components.Work, func(one *components.Component, check components.Check) {
		if one.Everywhere == everywhere {
			x.runComponentCheck(ctx, check, x.DB.Name, x.Installed)
		}
	})
}

// examineJobs runs the checks that only apply to the jobs database.
func (x *Examination) examineJobs(ctx context.Context, target doctor.Target) {
	doctor.ExamineWorkers(ctx, x.Report, doctor.Workers{Target: target, Silence: x.Config.Jobs.Silence})
	x.work(ctx, false)
	x.runCheck(ctx, x.Installed, "pauses", x.pauses)
	x.runCheck(ctx, x.Installed, "stalled_jobs", x.stalledJobs)
	x.runCheck(ctx, x.Installed, "cron", x.missingTicks)
}

// target returns the database, role and configuration that the checks of package doctor
// take.
func (x *Examination) target(schema migrate.Database) doctor.Target {
	t := doctor.Target{
		Database: x.DB, Installed: x.Installed, Schema: schema,
		Role:        x.Roles[x.DB.Name],
		Connections: x.maxConnections(),
	}
	if x.Bound {
		t.Parents = []doctor.Parent{}
		for _, parent := range x.Parents[x.DB.Name] {
			t.Parents = append(t.Parents, doctor.Parent{
				Schema: parent.Schema, Table: parent.Name,
				Recorded: parent.Recorded,
			})
		}
	}
	return t
}

// schemaFindings converts the errors of migrate.Check to findings.
func schemaFindings(ctx context.Context, schema migrate.Database) ([]doctor.Finding, error) {
	err := migrate.Check(ctx, schema)
	if unfit, ok := errors.AsType[*migrate.SchemaError](err); ok {
		return doctor.One(problem.Error, unfit.Object, err.Error(), unfit.Fix), nil
	}
	if privilege, ok := errors.AsType[*migrate.PrivilegeError](err); ok {
		return doctor.One(problem.Error, "schema sexton", "role "+privilege.Role+": "+privilege.Missing,
			"run "+privilege.Grant), nil
	}
	return nil, err
}

// functionFindings reports functions of another release.
func functionFindings(ctx context.Context, schema migrate.Database) (found []doctor.Finding, _ error) {
	other, err := migrate.OtherFunctions(ctx, schema)
	for _, name := range other {
		found = append(found, doctor.One(problem.Info, "component "+name, migrate.OtherFunctionsText,
			"sexton migrate up")...)
	}
	return found, err
}

// ownerFindings reports functions that run with too many or too few privileges.
func ownerFindings(ctx context.Context, schema migrate.Database) ([]doctor.Finding, error) {
	risks, err := migrate.OwnerRisks(ctx, schema)
	found := make([]doctor.Finding, 0, len(risks))
	for _, risk := range risks {
		severity := problem.Warning
		if risk.Harmless {
			severity = problem.Info
		}
		found = append(found, doctor.One(severity, risk.Object, risk.Message, risk.Fix)...)
	}
	return found, err
}

// examineGenerations compares the installed generation with the files and with what each
// worker has read.
func (x *Examination) examineGenerations(ctx context.Context) {
	db := x.DB
	// If loose foreign keys are disabled, only the jobs database has definitions and
	// lists.
	here := x.Config.Has(migrate.LooseForeignKeys) || db.Name == x.Config.Jobs.Database
	if !here || len(riverjobs.Generations(x.Config, x.Definitions)) == 0 {
		return
	}
	// If a definition file cannot be read, skip the comparison: the remaining definitions
	// would look like another generation.
	x.runCheck(ctx, x.Installed && x.Complete, "generations", func(ctx context.Context) ([]doctor.Finding, error) {
		differs, err := installation.GenerationFindings(ctx, db, riverjobs.Generations(x.Config, x.Definitions))
		var found []doctor.Finding
		for _, d := range differs {
			found = append(found, doctor.One(problem.Error, d.Trigger, d.Detail, d.Fix)...)
		}
		if err != nil || db.Name != x.Config.Jobs.Database {
			return found, err
		}
		alive, err := db.Queries().ClientsAlive(ctx, x.Config.Jobs.Silence.Seconds())
		for _, client := range alive {
			if len(client.Outdated) > 0 {
				found = append(found, doctor.One(problem.Warning, "worker "+client.ClientID+" on "+client.Host,
					fmt.Sprintf("its definitions differ from the installed definitions, so it does not run their job: %v",
						client.Outdated),
					"deploy the installed files to it, or run `sexton triggers install` with its files")...)
			}
		}
		return found, err
	})
}

// stalledJobs reports jobs that no worker has fetched, and jobs that are marked as
// running but have no run. Jobs of a paused kind are left out.
func (x *Examination) stalledJobs(ctx context.Context) (found []doctor.Finding, _ error) {
	pauses, err := installation.Pauses(ctx, x.Connections)
	for _, job := range riverjobs.Jobs(x.Config) {
		if err != nil || pauses[job.Queue] != "" {
			continue
		}
		for _, name := range job.Databases {
			reason, err := stalled(ctx, x.Jobs(), x.Config.Jobs.Silence, job, name)
			if err != nil {
				return found, err
			}
			if reason != "" {
				found = append(found, doctor.One(problem.Warning, job.Kind+"/"+name, "the job waits for "+reason,
					"start a worker (sexton run), or read the log of the running one")...)
			}
		}
	}
	return found, err
}

// pauses reports the paused jobs.
func (x *Examination) pauses(ctx context.Context) (found []doctor.Finding, _ error) {
	pauses, err := installation.Pauses(ctx, x.Connections)
	for _, job := range riverjobs.Jobs(x.Config) {
		if paused := pauses[job.Queue]; paused != "" {
			found = append(found, doctor.One(problem.Info, job.Kind, "the job is "+paused,
				"sexton resume "+job.Kind)...)
		}
	}
	return found, err
}

// missingTicks reports schedules without ticks.
func (x *Examination) missingTicks(ctx context.Context) (found []doctor.Finding, _ error) {
	leader, err := readLeader(ctx, x.Jobs(), x.Config.Jobs.Silence)
	if leader == nil {
		return nil, err
	}
	for _, s := range leader.Unled {
		found = append(found, doctor.One(problem.Warning, s.Kind, s.String(),
			"give all workers the same enabled components and databases; until then only commits start the job")...)
	}
	return found, err
}

// maxConnections returns how many connections one worker may open to one database: its
// pool for work, its pool for operators, and its listener.
func (x *Examination) maxConnections() int {
	return 2*installation.PoolSize(x.Config) + 1
}
