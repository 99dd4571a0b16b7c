package operator

import (
	"context"
	"errors"
	"fmt"

	"sexton/internal/doctor"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

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
	case err != nil:
		return nil, err
	default:
		return laterFunctions(ctx, schema)
	}
	return []doctor.Finding{finding}, nil
}

// laterFunctions tells of functions that a later release has installed.
func laterFunctions(ctx context.Context, schema migrate.Database) (found []doctor.Finding, _ error) {
	later, err := migrate.LaterFunctions(ctx, schema)
	for _, name := range later {
		found = append(found, doctor.Finding{
			Severity: problem.Info, Object: "component " + name, Message: migrate.LaterText, Fix: "run the later release",
		})
	}
	return found, err
}

// ownerFindings tells of functions with more rights than they need, or fewer.
func ownerFindings(ctx context.Context, schema migrate.Database) ([]doctor.Finding, error) {
	risks, err := migrate.OwnerRisks(ctx, schema)
	found := make([]doctor.Finding, 0, len(risks))
	for _, risk := range risks {
		severity := problem.Warning
		if risk.Harmless {
			severity = problem.Info
		}
		found = append(found, doctor.Finding{Severity: severity, Object: risk.Object, Message: risk.Message, Fix: risk.Fix})
	}
	return found, err
}

// hasGenerations reports whether definitions or lists are installed in a database. Without loose foreign keys all of them are those of the
// jobs database.
func (x *Examination) hasGenerations(name string) bool {
	return len(riverjobs.Generations(x.Config, x.Definitions)) > 0 && (x.Config.Has(migrate.LooseForeignKeys) || name == x.Config.Jobs.Database)
}

// examineGenerations compares what is installed with the files and with what each worker has read.
func (x *Examination) examineGenerations(ctx context.Context) {
	db := x.DB
	if !x.hasGenerations(db.Name) {
		return
	}
	// Half of the definitions would be another generation.
	if !x.Installed || !x.Whole {
		x.Report.Skip(db.Name, "generations")
		return
	}
	x.Report.Run(ctx, "generations", db.Name, func(ctx context.Context) ([]doctor.Finding, error) {
		differs, err := installation.GenerationFindings(ctx, db, riverjobs.Generations(x.Config, x.Definitions))
		var found []doctor.Finding
		for _, d := range differs {
			found = append(found, doctor.Finding{Severity: problem.Error, Object: d.Trigger, Message: d.Detail, Fix: d.Fix})
		}
		if err != nil || db.Name != x.Config.Jobs.Database {
			return found, err
		}
		alive, err := db.Queries().ClientsAlive(ctx, x.Config.Jobs.Silence.Seconds())
		for _, client := range alive {
			if len(client.Outdated) > 0 {
				found = append(found, doctor.Finding{
					Severity: problem.Warning, Object: "worker " + client.ClientID + " on " + client.Host,
					Message: fmt.Sprintf("it has read other definitions than the installed ones and leaves their job alone: %v", client.Outdated),
					Fix:     "have it read the files that were installed, or run `sexton triggers install` with its own",
				})
			}
		}
		return found, err
	})
}

// stalledJobs names jobs that no worker has fetched, or that count as running and are not. Jobs of a paused kind wait by intent.
func (x *Examination) stalledJobs(ctx context.Context) (found []doctor.Finding, _ error) {
	pauses, err := installation.Pauses(ctx, x.Connections)
	for _, job := range riverjobs.Jobs(x.Config) {
		if err != nil || pauses[job.Queue] != "" || job.Inserted() {
			continue
		}
		for _, name := range job.Databases {
			waits, err := stalled(ctx, x.Jobs(), job.Kind, name)
			if err != nil {
				return found, err
			}
			if waits != "" {
				found = append(found, doctor.Finding{
					Severity: problem.Warning, Object: job.Kind + "/" + name, Message: "the job waits for " + waits,
					Fix: "start a worker (sexton run), or look into the log of the one that runs",
				})
			}
		}
	}
	return found, err
}

// pauses reports which jobs are paused.
func (x *Examination) pauses(ctx context.Context) (found []doctor.Finding, _ error) {
	pauses, err := installation.Pauses(ctx, x.Connections)
	for _, job := range riverjobs.Jobs(x.Config) {
		if paused := pauses[job.Queue]; paused != "" {
			found = append(found, doctor.Finding{
				Severity: problem.Info, Object: job.Kind, Message: "the job is " + paused, Fix: "sexton resume " + job.Kind,
			})
		}
	}
	return found, err
}

// unled reports schedules without ticks.
func (x *Examination) unled(ctx context.Context) (found []doctor.Finding, _ error) {
	leader, err := readLeader(ctx, x.Jobs(), x.Config.Jobs.Silence)
	if leader == nil {
		return nil, err
	}
	for _, s := range leader.Unled {
		found = append(found, doctor.Finding{
			Severity: problem.Warning, Object: s.Kind, Message: s.String(),
			Fix: "give all workers the same enabled components and databases; until then commits alone wake the job",
		})
	}
	return found, err
}

// findServers finds out which databases share a server, and so its limits. One that does not say counts as alone.
func (x *Examination) findServers(ctx context.Context) {
	x.servers = map[string]installation.Server{}
	for _, db := range x.Databases {
		found, err := installation.ServerOf(ctx, db)
		if err != nil {
			found = installation.Server{ID: "of database " + db.Name}
		}
		x.servers[db.Name] = found
	}
}

// mostConnections is the number that one worker may open to one database: its pool for work, the one for what an operator asks and changes,
// and the two connections that listen.
func (x *Examination) mostConnections() int {
	return 2*installation.PoolSize(x.Config) + 2
}

// share sums up what a worker may open to the databases on matching servers.
func (x *Examination) share(matches func(installation.Server) bool) doctor.Share {
	var share doctor.Share
	for _, db := range x.Databases {
		if matches(x.servers[db.Name]) {
			share.Databases = append(share.Databases, db.Name)
			share.Connections += x.mostConnections()
		}
	}
	return share
}
