package app

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/doctor"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/migrate"
	"sexton/internal/pgschema"
	"sexton/internal/problem"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

// DoctorCommand is the command doctor.
func DoctorCommand(env *cli.Env) *cobra.Command {
	return env.Reports(&cobra.Command{
		Use:   "doctor",
		Short: "Look for what will keep the worker from its work; exits 5 where something needs attention",
		Long: `Checks connections, server, settings, privileges, schema, definitions, indexes, triggers, notifications, clocks
and workers, goes on where a check fails, and says of each finding how to put it right. Run it as the
worker's role. It changes nothing. Findings that are for information only leave the exit code at 0; where no
database can be reached, it is 4. Of several databases the reachable ones are examined, and the checks of
the others count as skipped.`,
		Example: "  sexton doctor\n  sexton doctor --json | jq -r '.findings[].fix'",
		Args:    cli.NoArguments,
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			c, err := env.LoadConfig()
			if err != nil {
				return err
			}
			x := &examination{report: doctor.NewReport(), Connections: &installation.Connections{Config: c}, undirected: map[string]bool{}}
			defer x.Close()
			unreachable := x.examine(cmd.Context())
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			if err := printExamination(env, x.report); err != nil {
				return err
			}
			switch {
			case len(x.Databases) == 0:
				return unreachable
			case x.report.Sick():
				return cli.ErrFindings
			}
			return nil
		}),
	})
}

// examination is one run of the doctor. Its databases are the reachable ones.
type examination struct {
	*installation.Connections

	report      *doctor.Report
	definitions []definitions.Definition
	// whole tells that the definitions could all be read.
	whole bool
	// parents are bound by database; complete only where bound says so.
	parents map[string][]*loosefk.Parent
	bound   bool
	// undirected are the databases that their listen_url does not lead to.
	undirected map[string]bool
	// servers are where the databases are, by name.
	servers map[string]installation.Server
	// storeUsable tells that the probe of the store of diffs has found nothing.
	storeUsable bool
}

// examine makes all checks. It returns the first error of a connection.
func (x *examination) examine(ctx context.Context) error {
	x.report.Run(ctx, "definitions", "", func(context.Context) ([]doctor.Finding, error) {
		defs, err := installation.LoadDefinitions(x.Config)
		problems, _ := errors.AsType[problem.List](err)
		x.definitions, x.whole = defs, len(problems) == 0
		return asFindings(problems), nil
	})
	var failed error
	for _, settings := range x.Config.Databases {
		failed = cmp.Or(failed, x.connect(ctx, settings))
	}
	if x.Config.LooseForeignKeys.Enabled {
		x.bind(ctx)
	}
	if x.Config.GhostUsers.Enabled {
		x.bindGhostUsers(ctx)
	}
	if x.Config.PlaceholderUsers.Enabled {
		x.bindPlaceholderUsers(ctx)
	}
	if x.Config.AdjournedGroups.Enabled {
		x.examineGroups(ctx)
	}
	if x.Config.ExternalDiffs.Enabled {
		x.storeUsable = x.report.Run(ctx, "external_diffs", x.Config.Jobs.Database, x.probeDiffStores)
	}
	x.findServers(ctx)
	schemas := x.Schemas()
	for i, db := range x.Databases {
		x.examineDatabase(ctx, db, schemas[i])
	}
	for _, settings := range x.Config.Databases {
		if x.reached(settings.Name) {
			continue
		}
		x.report.Skip(settings.Name, "schema", "owner")
		if x.Config.LooseForeignKeys.Enabled {
			x.report.Skip(settings.Name, "child_privileges", "parent_privileges", "indexes", "triggers", "generations")
		}
		doctor.Skip(x.report, settings.Name)
		if x.Config.LooseForeignKeys.Enabled {
			x.report.Skip(settings.Name, "failed_tombstones")
		}
	}
	if jobs := x.Config.Jobs.Database; !x.reached(jobs) {
		x.report.Skip(jobs, "workers", "schedules", "pauses", "stalled_jobs", "cron")
	}
	return failed
}

// connect opens a database. Where only its listen_url is wrong, everything else is still worth a look.
func (x *examination) connect(ctx context.Context, settings config.Database) (failed error) {
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
	x.report.Run(ctx, "connection", settings.Name, func(context.Context) ([]doctor.Finding, error) {
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

func (x *examination) reached(name string) bool {
	for _, db := range x.Databases {
		if db.Name == name {
			return true
		}
	}
	return false
}

func (x *examination) examineDatabase(ctx context.Context, db database.Database, schema migrate.Database) {
	installed := x.report.Run(ctx, "schema", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return schemaFindings(ctx, schema) })
	if installed {
		x.report.Run(ctx, "owner", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return ownerFindings(ctx, schema) })
	} else {
		x.report.Skip(db.Name, "owner")
	}
	parents := x.parents[db.Name]
	if x.Config.LooseForeignKeys.Enabled {
		x.report.Run(ctx, "child_privileges", db.Name, func(ctx context.Context) ([]doctor.Finding, error) {
			var missing problem.List
			for _, bound := range x.parents {
				found, err := loosefk.MissingPrivileges(ctx, db.Pool, db.Name, bound)
				if err != nil {
					return nil, err
				}
				missing.Add(found...)
			}
			return asFindings(missing), nil
		})
		x.report.Run(ctx, "parent_privileges", db.Name, func(ctx context.Context) ([]doctor.Finding, error) {
			unreadable, err := loosefk.UnreadableParents(ctx, db.Pool, parents)
			return asFindings(unreadable), err
		})
		x.report.Run(ctx, "indexes", db.Name, func(ctx context.Context) ([]doctor.Finding, error) {
			missing, err := MissingIndexes(ctx, x.Connections, db, x.parents)
			return asFindings(missing), err
		})
		// Against half of the definitions, the triggers of the others would seem to be surplus.
		if installed && x.bound {
			x.report.Run(ctx, "triggers", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return x.triggers(ctx, db, parents) })
		} else {
			x.report.Skip(db.Name, "triggers")
		}
	}
	x.examineGenerations(ctx, db, installed)
	target := x.target(db, schema)
	target.Installed = installed
	doctor.Examine(ctx, x.report, target)
	if x.Config.LooseForeignKeys.Enabled && installed {
		x.report.Run(ctx, "failed_tombstones", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return x.failedTombstones(ctx, db) })
	}
	if !schema.Jobs {
		return
	}
	if !installed {
		x.report.Skip(db.Name, "workers", "schedules", "pauses", "stalled_jobs", "cron")
		return
	}
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
	doctor.ExamineWorkers(ctx, x.report, workers)
	if x.Config.GhostUsers.Enabled {
		x.report.Run(ctx, "failing_users", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return failingUsers(ctx, db) })
	}
	if x.Config.PlaceholderUsers.Enabled {
		x.report.Run(ctx, "given_up", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return x.givenUpPlaceholders(ctx, db) })
	}
	if x.Config.ExternalDiffs.Enabled {
		x.report.Run(ctx, "diffs_trigger", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return diffsTrigger(ctx, db) })
		x.report.Run(ctx, "diffs_texts", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return diffsTexts(ctx, db) })
		x.report.Run(ctx, "skipped_diffs", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return skippedDiffs(ctx, db) })
		x.report.Run(ctx, "held_back_objects", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return heldBack(ctx, db) })
		if x.storeUsable {
			x.report.Run(ctx, "refused_workers", db.Name, func(ctx context.Context) ([]doctor.Finding, error) { return refusedWorkers(ctx, db) })
		}
	}
	if !x.Config.ExternalDiffs.Enabled {
		x.examineUnattended(ctx, db)
	}
	x.report.Run(ctx, "pauses", db.Name, func(ctx context.Context) ([]doctor.Finding, error) {
		found, paused := x.pauses(ctx)
		return found, cmp.Or(err, paused)
	})
	x.report.Run(ctx, "stalled_jobs", db.Name, x.stalledJobs)
	x.report.Run(ctx, "cron", db.Name, x.unled)
}

// bind holds the definitions against the databases that can be reached.
func (x *examination) bind(ctx context.Context) {
	name := ""
	if len(x.Config.Databases) == 1 {
		name = x.Config.Databases[0].Name
	}
	if len(x.Databases) == 0 {
		return
	}
	x.report.Run(ctx, "tables", name, func(ctx context.Context) ([]doctor.Finding, error) {
		var sites []loosefk.Site
		for _, settings := range x.Config.Databases {
			site := loosefk.Site{Name: settings.Name, Schema: settings.Schema, Tables: settings.Tables}
			for _, db := range x.Databases {
				if db.Name == settings.Name {
					site.DB = db.Pool
				}
			}
			sites = append(sites, site)
		}
		found, problems, err := loosefk.Resolve(ctx, sites, x.definitions)
		// Of a database that is there, all parents are known, wherever their children are.
		x.parents, x.bound = found, err == nil && x.whole && problems.Err() == nil
		return asFindings(WithoutIndexes(problems)), err
	})
}

// target collects what the checks of a database have to know of the rest of the program.
func (x *examination) target(db database.Database, schema migrate.Database) doctor.Target {
	t := doctor.Target{
		Database: db, Undirected: x.undirected[db.Name], Grants: grantsOf(schema), Connections: x.mostConnections(),
		Server: x.share(func(s installation.Server) bool { return s.ID == x.servers[db.Name].ID }),
		Role:   x.share(func(s installation.Server) bool { return s == x.servers[db.Name] }),
	}
	if x.bound {
		t.Parents = []doctor.Parent{}
		for _, parent := range x.parents[db.Name] {
			t.Parents = append(t.Parents, doctor.Parent{Schema: parent.Schema, Table: parent.Name, Recorded: parent.Recorded})
		}
	}
	return t
}

// schemaFindings words what migrate.Check says, whose errors name the way out in their texts.
func schemaFindings(ctx context.Context, schema migrate.Database) ([]doctor.Finding, error) {
	err := migrate.Check(ctx, schema)
	finding := doctor.Finding{Severity: problem.Error, Object: "schema " + schema.JobsSchema}
	var (
		versions  *migrate.SchemaError
		placement *migrate.PlacementError
		privilege *migrate.PrivilegeError
	)
	switch {
	case errors.As(err, &versions):
		finding.Object, finding.Message, finding.Fix = "component "+versions.Component, err.Error(), "sexton migrate up"
		switch {
		case versions.Object != "":
			finding.Fix = "restore the table, or run `sexton migrate down --force` and `sexton migrate up`"
		case versions.Current > versions.Want:
			finding.Fix = "run a newer sexton"
		}
	case errors.As(err, &placement):
		finding.Object, finding.Message = placement.Installed, err.Error()
		finding.Fix = "set the schema back, or run `sexton migrate down` with the old configuration first"
	case errors.As(err, &privilege):
		finding.Message, finding.Fix = "role "+privilege.Role+": "+privilege.Missing, "run "+privilege.Grant
	default:
		return nil, err
	}
	return []doctor.Finding{finding}, nil
}

// triggers tells of everything that differs, by what it costs.
func (x *examination) triggers(ctx context.Context, db database.Database, parents []*loosefk.Parent) ([]doctor.Finding, error) {
	cfg, tracked := riverjobs.Tracking(x.Config, db, parents)
	var found []doctor.Finding
	err := installation.OnConnection(ctx, db, func(conn *pgx.Conn) error {
		differences, err := triggers.Status(ctx, conn, cfg, tracked)
		for _, d := range differences {
			severity := problem.Error
			switch {
			case !d.Drift():
				severity = problem.Info
			case d.Kind == triggers.Surplus, d.Trigger == triggers.WakeTrigger, d.Trigger == triggers.WakeUpdateTrigger, d.Trigger == triggers.EventTrigger:
				severity = problem.Warning
			}
			object := d.Trigger
			if d.Table != "" {
				object += " on " + d.Table
			}
			found = append(found, doctor.Finding{Severity: severity, Object: object, Message: string(d.Kind) + ": " + d.Detail, Fix: d.Fix})
		}
		return err
	})
	return found, err
}

// asFindings takes over what definitions are checked by, each finding once: a cycle is come across from several sides.
func asFindings(problems problem.List) []doctor.Finding {
	found := make([]doctor.Finding, 0, len(problems))
	for _, p := range problems {
		place := p.Position.String()
		message, fix := p.Message, "correct it in "+p.Position.File
		if p.Key != "" && place != "" {
			message = place + ": " + message
		}
		if p.Severity == problem.Info {
			fix = "nothing, where it is meant so"
		}
		finding := doctor.Finding{Severity: p.Severity, Object: cmp.Or(p.Key, place), Message: message, Fix: cmp.Or(p.Fix, fix)}
		if !slices.Contains(found, finding) {
			found = append(found, finding)
		}
	}
	return found
}

// printExamination prints what was found, each with its way out below.
func printExamination(env *cli.Env, report *doctor.Report) error {
	if env.JSON {
		return env.PrintJSON(report)
	}
	skipped := 0
	for _, check := range report.Checks {
		if check.Result == doctor.Skipped {
			skipped++
		}
	}
	for _, f := range report.Findings {
		place := f.Check
		if f.Database != "" {
			place = f.Database + " " + place
		}
		env.Printf("%s: %s: %s: %s\n  fix: %s\n", f.Severity, place, f.Object, words.Cell(&f.Message), words.Cell(&f.Fix))
	}
	env.Printf("%s: %s, %s, %d for information", words.Counted(len(report.Checks), "check"),
		words.Counted(report.Count(problem.Error), "error"), words.Counted(report.Count(problem.Warning), "warning"), report.Count(problem.Info))
	if skipped > 0 {
		env.Printf("; %d skipped", skipped)
	}
	env.Printf("\n")
	return nil
}
