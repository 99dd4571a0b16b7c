package migrate

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"sexton/internal/each"
	"sexton/internal/problem"
	sqlfiles "sexton/sql"
)

// The components, in the order of their installation.
const (
	Base             = "base"
	Jobs             = "jobs"
	River            = "river"
	LooseForeignKeys = "loose_foreign_keys"
	GhostUsers       = "ghost_users"
	PlaceholderUsers = "placeholder_users"
	AdjournedGroups  = "adjourned_groups"
	ExternalDiffs    = "external_diffs"
	Undo             = "undo"
)

// complete returns the database with every component: what once was installed is removed, whatever is enabled now.
func (db Database) complete() Database {
	db.Jobs, db.Components = true, nil
	for _, c := range allComponents() {
		db.Components = append(db.Components, c.name)
	}
	return db
}

// Latest is the newest version of a component that this program brings.
type Latest struct {
	Component string `json:"component"`
	Version   int64  `json:"version"`
}

// Versions returns the newest version of every component, in the order of their installation.
func Versions() []Latest {
	return each.Of(allComponents(), func(c component) Latest { return Latest{Component: c.name, Version: latest(c)} })
}

func latest(c component) int64 {
	migrations := c.migrations()
	return migrations[len(migrations)-1].Version
}

// versionTable is the name of the component's version table in Sexton's schema.
func versionTable(component string) string { return "migrations_" + component }

// relations are all that the newest version has in Sexton's schema.
func (c component) relations() []string {
	if c.name == River {
		return c.creates
	}
	return append([]string{versionTable(c.name)}, c.creates...)
}

// migrations are all steps that this program knows, by ascending version. The folder is part of the program, so what is wrong with it shows
// in every test.
func (c component) migrations() []Migration {
	if c.name == River {
		return riverMigrations()
	}
	files, _ := fs.Glob(sqlfiles.Migrations, path.Join("migrations", c.name, "*.up.sql"))
	migrations := make([]Migration, 0, len(files))
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".up.sql")
		digits, _, _ := strings.Cut(name, "_")
		version, _ := strconv.ParseInt(digits, 10, 64)
		migrations = append(migrations, Migration{Version: version, Name: name})
	}
	slices.SortFunc(migrations, func(a, b Migration) int { return int(a.Version - b.Version) })
	return migrations
}

// statements returns the SQL of one migration, with the configured names.
func (c component) statements(s *session, m Migration) (string, error) {
	text, err := fs.ReadFile(sqlfiles.Migrations, path.Join("migrations", c.name, m.Name+".up.sql"))
	return s.replacer.Replace(string(text)), problem.Doing(err, "read migration")
}

// missing are the migrations that the database lacks.
func (c component) missing(look inspection) []Migration {
	return slices.DeleteFunc(c.migrations(), func(m Migration) bool { return m.Version <= look.versions[c.name] })
}

// versions is the name of the component's version table in statements.
func (c component) versions(s *session) string {
	return pgx.Identifier{s.db.JobsSchema, versionTable(c.name)}.Sanitize()
}

// up commits each migration together with its version, the first one with the version table, too.
func (c component) up(ctx context.Context, s *session, look inspection) ([]Migration, error) {
	if c.name == River {
		return riverUp(ctx, s)
	}
	applied := []Migration{}
	for _, m := range c.missing(look) {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if len(applied) == 0 && !slices.Contains(look.relations, versionTable(c.name)) {
				if err := c.createVersions(ctx, s, tx); err != nil {
					return err
				}
			}
			statements, err := c.statements(s, m)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, statements); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "INSERT INTO "+c.versions(s)+" (version) VALUES ($1)", m.Version)
			return err
		})
		if err != nil {
			return applied, fmt.Errorf("apply version %d: %w", m.Version, err)
		}
		applied = append(applied, m)
	}
	return applied, nil
}

// createVersions creates the version table together with its entry in the registry.
func (c component) createVersions(ctx context.Context, s *session, tx pgx.Tx) error {
	create := "CREATE TABLE " + c.versions(s) + " (version bigint PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT pg_catalog.now())"
	if _, err := tx.Exec(ctx, create); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.db.register(), "table", identity(s.db.JobsSchema, versionTable(c.name)), c.name)
	return err
}

// down takes everything back at once, together with all versions.
func (c component) down(ctx context.Context, s *session, look inspection) ([]Migration, error) {
	if c.name == River {
		return riverDown(ctx, s)
	}
	applied := slices.DeleteFunc(c.migrations(), func(m Migration) bool { return m.Version > look.versions[c.name] })
	slices.Reverse(applied)
	if len(applied) == 0 {
		return applied, nil
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := c.remove(ctx, s, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM "+c.versions(s))
		return err
	})
	if err != nil {
		return []Migration{}, err
	}
	return applied, nil
}

// newRiverMigrator needs no connection to tell what versions there are.
func newRiverMigrator(pool *pgxpool.Pool, log *slog.Logger, schema string) (*rivermigrate.Migrator[pgx.Tx], error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: log, Schema: schema})
	return migrator, problem.Doing(err, "prepare River's migrations")
}

func riverMigrations() []Migration {
	migrator, err := newRiverMigrator(nil, slog.New(slog.DiscardHandler), "")
	if err != nil {
		return nil
	}
	return each.Of(migrator.AllVersions(), func(m rivermigrate.Migration) Migration { return Migration{Version: int64(m.Version), Name: m.Name} })
}

func riverUp(ctx context.Context, s *session) ([]Migration, error) {
	// River commits each version by itself. The entry comes first, so that a crash in between leaves
	// nothing that Down does not know of.
	if _, err := s.pool.Exec(ctx, s.db.register(), "river", s.db.JobsSchema, River); err != nil {
		return []Migration{}, fmt.Errorf("register River's tables: %w", err)
	}
	return migrateRiver(ctx, s, rivermigrate.DirectionUp, nil)
}

func riverDown(ctx context.Context, s *session) ([]Migration, error) {
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
