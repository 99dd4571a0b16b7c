package app

import (
	"context"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/lease"
	"sexton/internal/migrate"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

// install brings databases to the state that a worker needs: migrations and triggers. It returns what bind
// does.
func install(ctx context.Context, c *config.Config, log *slog.Logger) (_ *bound, err error) {
	all, err := open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer all.close()
	for _, schema := range all.schemas() {
		if _, err := migrate.Up(ctx, log, schema); err != nil {
			return nil, err
		}
	}
	b, err := bind(ctx, c)
	if err != nil {
		return nil, err
	}
	if _, err := installTriggers(ctx, b, func(*triggers.Config) {}); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// installTriggers installs triggers in all databases and then, as nothing is missing any more, the generation of the definitions.
func installTriggers(ctx context.Context, b *bound, set func(*triggers.Config)) ([]triggerReport, error) {
	reports := []triggerReport{}
	err := b.onTracked(ctx, func(db database.Database, conn *pgx.Conn, cfg triggers.Config, parents []triggers.Parent) error {
		set(&cfg)
		report, err := triggers.Install(ctx, conn, cfg, parents)
		reports = append(reports, triggerReport{Database: db.Name, Report: report})
		return err
	})
	if err != nil {
		return nil, err
	}
	added, moved, err := riverjobs.InstallGenerations(ctx, b.jobs(), b.databases, b.generations(), actor())
	if err != nil {
		return nil, err
	}
	for i := range reports {
		if reports[i].Database == b.jobs().Name {
			reports[i].Generations = moved
		}
		reports[i].Audit = b.childrenOf(reports[i].Database, added)
	}
	return reports, nil
}

// childrenOf names the child tables of a database's parents whose definitions are among the entries.
func (b *bound) childrenOf(name string, entries map[string]bool) []string {
	var children []string
	for _, parent := range b.parents[name] {
		for _, reference := range parent.References {
			if entries[riverjobs.DefinitionEntry(b.config, reference.Definition)] {
				children = append(children, reference.Definition.Child.String())
			}
		}
	}
	slices.Sort(children)
	return slices.Compact(children)
}

// generations are those of the enabled jobs, as this process has read them.
func (b *bound) generations() []riverjobs.Generation {
	return riverjobs.Generations(b.config, b.definitions)
}

// leases are granted to holder for work with the definitions that this process has read.
func (b *bound) leases(holder string) *lease.Manager {
	return &lease.Manager{Jobs: b.jobs(), Holder: holder, Digests: riverjobs.Digests(b.generations())}
}
