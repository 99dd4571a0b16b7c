package app

import (
	"context"
	"fmt"

	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/installation"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// examineGenerations compares what is installed with the files and with what each worker has read.
func (x *examination) examineGenerations(ctx context.Context, db database.Database, installed bool) {
	generations := riverjobs.Generations(x.Config, x.definitions)
	// Without loose foreign keys all of them are those of the jobs database.
	if len(generations) == 0 || !x.Config.LooseForeignKeys.Enabled && db.Name != x.Config.Jobs.Database {
		return
	}
	// Half of the definitions would be another generation.
	if !installed || !x.whole {
		x.report.Skip(db.Name, "generations")
		return
	}
	x.report.Run(ctx, "generations", db.Name, func(ctx context.Context) ([]doctor.Finding, error) {
		differs, err := installation.GenerationFindings(ctx, db, generations)
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
