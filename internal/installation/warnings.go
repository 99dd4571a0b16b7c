package installation

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/loosefk"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

// MissingPrivileges are what the role lacks for the children of a database's parents, wherever those live.
func MissingPrivileges(ctx context.Context, all *Bound, name string) (problem.List, error) {
	var missing problem.List
	for _, db := range all.Databases {
		if all.Down[db.Name] != nil {
			continue
		}
		found, err := loosefk.MissingPrivileges(ctx, db.Pool, db.Name, all.Parents[name])
		if err != nil {
			return nil, err
		}
		missing.Add(found...)
	}
	return missing, nil
}

// WarningsOf are what makes a pass slow or leaves it without work, and no reason not to run.
func WarningsOf(ctx context.Context, all *Bound, db database.Database) ([]string, error) {
	var warnings []string
	for _, p := range all.Warnings {
		warnings = append(warnings, p.String())
	}
	for _, other := range all.Databases {
		if err := all.Down[other.Name]; err != nil {
			warnings = append(warnings, err.Error()+"; what depends on it waits")
		}
	}
	if _, down := all.Down[db.Name]; down {
		return warnings, nil
	}
	cfg, tracked := riverjobs.Tracking(all.Config, db, all.Parents[db.Name])
	err := OnConnection(ctx, db, func(conn *pgx.Conn) error {
		findings, err := triggers.Status(ctx, conn, cfg, tracked)
		if slices.ContainsFunc(findings, triggers.Finding.Drift) {
			warnings = append(warnings, "triggers are not as the definitions need them, so deletions may go unrecorded;"+
				" see sexton triggers status, run sexton triggers install")
		}
		return err
	})
	return warnings, err
}
