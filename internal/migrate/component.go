package migrate

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

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
)

// component is a set of objects with versions of its own.
type component interface {
	name() string
	// migrations are all steps that this program knows, by ascending version.
	migrations() []Migration
	// creates are the relations that the newest version has in Sexton's schema.
	creates() []string
	up(ctx context.Context, s *session) ([]Migration, error)
	down(ctx context.Context, s *session) ([]Migration, error)
}

// components returns the components that belong into the database.
func (db Database) components() []component {
	components := []component{sqlComponent(Base)}
	if db.Jobs {
		components = append(components, sqlComponent(Jobs), riverComponent{})
	}
	for _, name := range optional() {
		if db.has(name) {
			components = append(components, sqlComponent(name))
		}
	}
	return components
}

// has reports whether an optional component belongs into the database.
func (db Database) has(component string) bool { return slices.Contains(db.Components, component) }

// optional are the components that configuration enables, in the order of their installation: a folder of migrations is one.
func optional() []string {
	names := []string{LooseForeignKeys, GhostUsers, PlaceholderUsers, AdjournedGroups, ExternalDiffs}
	folders, _ := fs.ReadDir(sqlfiles.Migrations, "migrations")
	for _, folder := range folders {
		if name := folder.Name(); folder.IsDir() && name != Base && name != Jobs && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// complete returns the database with every component: what once was installed is removed, whatever is enabled now.
func (db Database) complete() Database {
	db.Jobs, db.Components = true, optional()
	return db
}

// allComponents returns all there are.
func allComponents() []component { return Database{}.complete().components() }

// Latest is the newest version of a component that this program brings.
type Latest struct {
	Component string `json:"component"`
	Version   int64  `json:"version"`
}

// Versions returns the newest version of every component, in the order of their installation.
func Versions() []Latest {
	var versions []Latest
	for _, c := range allComponents() {
		versions = append(versions, Latest{Component: c.name(), Version: latest(c)})
	}
	return versions
}

func latest(c component) int64 {
	migrations := c.migrations()
	return migrations[len(migrations)-1].Version
}

// sqlComponent is a component of ours: a folder of SQL files run by goose.
type sqlComponent string

func (c sqlComponent) name() string { return string(c) }

// versionTable is the name of the component's version table in Sexton's schema.
func versionTable(component string) string { return "migrations_" + component }

func (c sqlComponent) creates() []string {
	switch c {
	case Base:
		return []string{versionTable(Base), "fences", "events", "run_counts", "application_tables", "backlog"}
	case Jobs:
		return []string{versionTable(Jobs), "leases", "runs", "clients", "schedules", "job_kinds", "generations", "samples", "audit"}
	case LooseForeignKeys:
		return []string{versionTable(LooseForeignKeys), "swept"}
	case PlaceholderUsers:
		return []string{versionTable(PlaceholderUsers), "placeholder_rules"}
	case AdjournedGroups:
		return []string{versionTable(AdjournedGroups), "group_destructions", "group_deletion_failures"}
	case ExternalDiffs:
		return []string{
			versionTable(ExternalDiffs), "external_diffs", "external_diff_removals", "external_diff_cursors", "external_diff_installation",
			"external_diff_stores",
		}
	default:
		return []string{versionTable(string(c))}
	}
}

// migrations reads the folder. It is part of the program, so what is wrong with it shows in every test.
func (c sqlComponent) migrations() []Migration {
	files, _ := fs.Glob(sqlfiles.Migrations, path.Join("migrations", string(c), "*.up.sql"))
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

// statements returns the SQL of one migration in one direction, with the configured names.
func (c sqlComponent) statements(s *session, m Migration, direction string) (string, error) {
	file := path.Join("migrations", string(c), m.Name+"."+direction+".sql")
	text, err := fs.ReadFile(sqlfiles.Migrations, file)
	if err != nil {
		return "", fmt.Errorf("read migration: %w", err)
	}
	return s.replacer.Replace(string(text)), nil
}
