package migrate

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverComponent is River's own tables, migrated by River's own migrations in Sexton's schema. River
// keeps its versions itself, so the registry only says that they are ours to remove.
type riverComponent struct{}

func (riverComponent) name() string { return River }

func (riverComponent) creates() []string {
	return []string{"river_migration", "river_job", "river_leader", "river_queue", "river_notification", "river_client", "river_client_queue"}
}

// newRiverMigrator needs no connection to tell what versions there are.
func newRiverMigrator(pool *pgxpool.Pool, log *slog.Logger, schema string) (*rivermigrate.Migrator[pgx.Tx], error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: log, Schema: schema})
	if err != nil {
		return nil, fmt.Errorf("prepare River's migrations: %w", err)
	}
	return migrator, nil
}

func (riverComponent) migrations() []Migration {
	migrator, err := newRiverMigrator(nil, slog.New(slog.DiscardHandler), "")
	if err != nil {
		return nil
	}
	var migrations []Migration
	for _, m := range migrator.AllVersions() {
		migrations = append(migrations, Migration{Version: int64(m.Version), Name: m.Name})
	}
	return migrations
}

// LeftOut returns the indexes of River that up drops. Two serve searches in arguments and metadata, which neither River nor its page ever makes; a kind
// is found by its queue, and River's page may read the few jobs that are kept. Each change of a job enters it into them anew: they
// were a quarter of the log that a deletion wrote.
func LeftOut() []string {
	return []string{"river_job_args_index", "river_job_metadata_index", "river_job_kind"}
}

func (riverComponent) up(ctx context.Context, s *session) ([]Migration, error) {
	// River commits each version by itself. The entry comes first, so that a crash in between leaves
	// nothing that Down does not know of.
	if _, err := s.pool.Exec(ctx, s.db.register(), "river", s.db.JobsSchema, River); err != nil {
		return []Migration{}, fmt.Errorf("register River's tables: %w", err)
	}
	applied, err := migrateRiver(ctx, s, rivermigrate.DirectionUp, nil)
	if err != nil {
		return applied, err
	}
	for _, index := range LeftOut() {
		if _, err := s.pool.Exec(ctx, "DROP INDEX IF EXISTS "+pgx.Identifier{s.db.JobsSchema, index}.Sanitize()); err != nil {
			return applied, fmt.Errorf("drop River's index %s, which no query uses: %w", index, err)
		}
	}
	if err := leaveRoom(ctx, s.pool, pgx.Identifier{s.db.JobsSchema, "river_job"}.Sanitize()); err != nil {
		return applied, fmt.Errorf("leave room in the pages of River's jobs: %w", err)
	}
	return applied, nil
}

// leaveRoom leaves half of each page of a table for new versions of its rows, which are logged by what differs from the one before on the same page.
// A job's row is written three times.
func leaveRoom(ctx context.Context, pool *pgxpool.Pool, table string) error {
	var left bool
	const sql = `SELECT coalesce('fillfactor=50' OPERATOR(pg_catalog.=) ANY (reloptions), false)
		FROM pg_catalog.pg_class WHERE oid OPERATOR(pg_catalog.=) $1::pg_catalog.text::pg_catalog.regclass`
	if err := pool.QueryRow(ctx, sql, table).Scan(&left); err != nil || left {
		return err //nolint:wrapcheck // the caller words it
	}
	_, err := pool.Exec(ctx, "ALTER TABLE "+table+" SET (fillfactor = 50)")
	return err //nolint:wrapcheck // likewise
}

func (riverComponent) down(ctx context.Context, s *session) ([]Migration, error) {
	// Removing River's version 6 builds an index of which finished jobs of one key are duplicates. A run that broke off may have left the
	// schema without the table.
	var jobs *string
	table := pgx.Identifier{s.db.JobsSchema, "river_job"}.Sanitize()
	if err := s.pool.QueryRow(ctx, "SELECT pg_catalog.to_regclass($1)::pg_catalog.text", table).Scan(&jobs); err != nil {
		return nil, fmt.Errorf("look for River's jobs: %w", err)
	}
	if jobs != nil {
		if _, err := s.pool.Exec(ctx, "TRUNCATE "+table); err != nil {
			return nil, fmt.Errorf("empty the table of River's jobs: %w", err)
		}
	}
	return migrateRiver(ctx, s, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1})
}

func migrateRiver(ctx context.Context, s *session, direction rivermigrate.Direction, opts *rivermigrate.MigrateOpts) ([]Migration, error) {
	applied := []Migration{}
	// River tells each step at level info, and so do we; its own lines would be a second account.
	migrator, err := newRiverMigrator(s.pool, slog.New(slog.DiscardHandler), s.db.JobsSchema)
	if err != nil {
		return applied, err
	}
	result, err := migrator.Migrate(ctx, direction, opts)
	if err != nil {
		return applied, fmt.Errorf("run River's migrations: %w", err)
	}
	for _, v := range result.Versions {
		applied = append(applied, Migration{Version: int64(v.Version), Name: v.Name})
	}
	return applied, nil
}
