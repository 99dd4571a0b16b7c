package migrate

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// expected is a table that a component's migrations create. columns is empty for
// partitions.
type expected struct {
	tracked bool
	name    string
	columns []string
}

// createdTable matches a CREATE TABLE statement in a migration: indentation, schema and
// table. createdColumn matches the line of a column in it.
var (
	createdTable  = regexp.MustCompile(`(?m)^( *)CREATE TABLE IF NOT EXISTS "(\w+)"\.(\w+)( \(\n)?`)
	createdColumn = regexp.MustCompile(`(?m)^ *([a-z]\w*) `)
)

// adopts reports whether a table without Sexton's comment has the columns of Sexton's
// table, as after the restore of a dump without comments.
func (e expected) adopts(found relation) bool {
	return (found.kind == "r" || found.kind == "p") && !slices.ContainsFunc(e.columns,
		func(column string) bool { return found.typeOf(column) == "" })
}

// tables returns the tables of the component's newest version, from its SQL files.
func (c component) tables() []expected {
	if c.name == River {
		list := make([]expected, 0, len(riverTables()))
		for _, name := range riverTables() {
			list = append(list, expected{name: name})
		}
		return list
	}
	return createdTables()[c.name]
}

//nolint:gochecknoglobals // reads the files once
var createdTables = sync.OnceValue(func() map[string][]expected {
	all := map[string][]expected{}
	for _, c := range allComponents() {
		for _, m := range c.migrations() {
			text := c.text(m)
			for _, at := range createdTable.FindAllStringSubmatchIndex(text, -1) {
				found := expected{tracked: text[at[4]:at[5]] == "public", name: text[at[6]:at[7]]}
				if at[8] >= 0 {
					body, _, _ := strings.Cut(text[at[1]:], "\n"+text[at[2]:at[3]]+")")
					for _, column := range createdColumn.FindAllStringSubmatch(body, -1) {
						found.columns = append(found.columns, column[1])
					}
				}
				all[c.name] = append(all[c.name], found)
			}
		}
	}
	return all
})

// missingTables returns the tables of the component that are missing.
func (db Database) missingTables(snap snapshot, c component) (missing []string) {
	for _, e := range c.tables() {
		if e.tracked && c.queue == "" {
			continue // In installations with other tables than GitLab's, views replace this table.
		}
		found, name := snap.own[e.name], identity(schema, e.name)
		if e.tracked {
			found, name = snap.tracked[e.name], identity(db.TrackedSchema, e.name)
		}
		if !found.exists() {
			missing = append(missing, name)
		}
	}
	return missing
}

// due returns the migrations of a component that Up runs: the migrations that are newer
// than the installed version of the component. If a table of an installed component is
// missing, it returns all migrations, because one component may add columns to a table of
// another.
func (db Database) due(snap snapshot, c component) []Migration {
	version := snap.versions[c.name]
	if c.name != River && slices.ContainsFunc(db.components(), func(other component) bool {
		return other.name != River && snap.versions[other.name] > 0 && len(db.missingTables(snap, other)) > 0
	}) {
		version = 0
	}
	return slices.DeleteFunc(c.migrations(), func(m Migration) bool { return m.Version <= version })
}
