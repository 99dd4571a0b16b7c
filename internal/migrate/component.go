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
func (db Database) components() (list []component) {
	for _, f := range db.enabled() {
		list = append(list, sqlComponent{f})
		if f.name == Jobs {
			list = append(list, riverComponent{})
		}
	}
	return list
}

// complete returns the database with every component: what once was installed is removed, whatever is enabled now.
func (db Database) complete() Database {
	db.Jobs, db.Components = true, nil
	for _, f := range families() {
		db.Components = append(db.Components, f.name)
	}
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
type sqlComponent struct{ family }

func (c sqlComponent) name() string { return c.family.name }

// versionTable is the name of the component's version table in Sexton's schema.
func versionTable(component string) string { return "migrations_" + component }

func (c sqlComponent) creates() []string {
	return append([]string{versionTable(c.name())}, c.family.creates...)
}

// migrations reads the folder. It is part of the program, so what is wrong with it shows in every test.
func (c sqlComponent) migrations() []Migration {
	files, _ := fs.Glob(sqlfiles.Migrations, path.Join("migrations", c.name(), "*.up.sql"))
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
	file := path.Join("migrations", c.name(), m.Name+"."+direction+".sql")
	text, err := fs.ReadFile(sqlfiles.Migrations, file)
	if err != nil {
		return "", fmt.Errorf("read migration: %w", err)
	}
	return s.replacer.Replace(string(text)), nil
}
