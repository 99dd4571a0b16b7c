package components

import (
	"context"
	"strings"
	"time"

	"sexton/internal/component"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/dryrun"
	"sexton/internal/problem"
)

// PlanLimits keep a dry run short on any backlog: beyond them counts read "more than".
func PlanLimits() dryrun.Limits {
	return dryrun.Limits{Tombstones: component.PendingCap, Rows: 100_000, StatementTimeout: 5 * time.Second}
}

// PlanSites are the databases as a dry run looks at them.
func PlanSites(all *installation.Connections, parents map[string][]*loosefk.Parent) []dryrun.Site {
	sites := make([]dryrun.Site, len(all.Databases))
	for i, db := range all.Databases {
		sites[i] = dryrun.Site{Name: db.Name, Names: db.Names, Parents: parents[db.Name]}
		if all.Down[db.Name] == nil {
			sites[i].DB = db.Pool
		}
	}
	return sites
}

// MissingIndexes are the indexes that clean-ups in one database lack.
func MissingIndexes(ctx context.Context, all *installation.Connections, db database.Database, parents map[string][]*loosefk.Parent) (problem.List, error) {
	sites := PlanSites(all, parents)
	for _, site := range sites {
		if site.Name == db.Name {
			return dryrun.MissingIndexes(ctx, site, sites, PlanLimits().StatementTimeout)
		}
	}
	return nil, nil
}

// WithoutIndexes leaves out what MissingIndexes says, knowing partitions and what is below a child.
func WithoutIndexes(problems problem.List) (others problem.List) {
	for _, p := range problems {
		if !strings.HasPrefix(p.Fix, "CREATE INDEX ") && !strings.HasPrefix(p.Fix, "index each partition") {
			others.Add(p)
		}
	}
	return others
}
