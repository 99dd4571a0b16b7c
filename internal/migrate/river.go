package migrate

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"sexton/internal/problem"
	"sexton/internal/render"
)

// newRiverMigrator returns a migrator. pool may be nil if the migrator is only used to
// list versions.
func newRiverMigrator(pool *pgxpool.Pool) (*rivermigrate.Migrator[pgx.Tx], error) {
	// River's own log is disabled, because logApplied logs each migration.
	migrator, err := rivermigrate.New(riverpgxv5.New(pool),
		&rivermigrate.Config{Logger: slog.New(slog.DiscardHandler), Schema: schema})
	return migrator, problem.Doing(err, "prepare River's migrations")
}

func riverMigrations() []Migration {
	migrator, err := newRiverMigrator(nil)
	if err != nil {
		return nil
	}
	return render.Each(migrator.AllVersions(),
		func(m rivermigrate.Migration) Migration { return Migration{Version: int64(m.Version), Name: m.Name} })
}

// riverTables returns the tables of River's newest version.
func riverTables() []string {
	return []string{"river_migration", "river_job", "river_leader", "river_queue", "river_notification"}
}

// upRiver runs River's migrations, which commit one by one. After the restore of a schema
// dump the versions are missing. If all tables exist, upRiver then records the versions.
// If a table is missing, upRiver drops and creates all tables, unless there are jobs.
func (s *session) upRiver(ctx context.Context, snap snapshot) ([]Migration, error) {
	version, missing := snap.versions[River], s.db.missingTables(snap, riverComponent())
	present := slices.ContainsFunc(riverTables(), func(name string) bool { return snap.own[name].exists() })
	switch latest := latest(riverComponent()); {
	case version == 0 && present && len(missing) == 0:
		if _, err := s.pool.Exec(ctx, sqlText("river_versions"), latest); err != nil {
			return nil, fmt.Errorf("record River's versions: %w", err)
		}
	case version == 0 && present, version == latest && len(missing) > 0:
		if err := s.dropRiver(ctx, snap, missing); err != nil {
			return nil, err
		}
	}
	migrator, err := newRiverMigrator(s.pool)
	if err != nil {
		return nil, err
	}
	result, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	if err != nil {
		return nil, fmt.Errorf("run River's migrations: %w", err)
	}
	return render.Each(result.Versions, func(v rivermigrate.MigrateVersion) Migration {
		return Migration{Version: int64(v.Version), Name: v.Name}
	}), nil
}

func (s *session) dropRiver(ctx context.Context, snap snapshot, missing []string) error {
	if snap.own["river_job"].exists() {
		var jobs int64
		if err := s.pool.QueryRow(ctx, sqlText("river_jobs")).Scan(&jobs); err != nil {
			return fmt.Errorf("count jobs: %w", err)
		}
		if jobs > 0 {
			const fix = "restore it, or run `TRUNCATE sexton.river_job` and `sexton migrate up`"
			return &SchemaError{Object: "component " + River, Fix: fix, text: fmt.Sprintf(
				"database %s lacks River's %s, and there are jobs (%d); %s", s.db.Name, strings.Join(missing, ", "),
				jobs, fix)}
		}
	}
	statements, err := list(ctx, s.pool, "River's objects", pgx.RowTo[string], sqlText("river_drops"))
	if err != nil {
		return err
	}
	return s.change(ctx, func(tx pgx.Tx) error { return execAll(ctx, tx, statements) })
}
