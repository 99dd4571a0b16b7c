package migrate

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// expected is a table that a component's migrations create. Partitions have no columns of
// their own.
type expected struct {
	tracked bool
	name    string
	columns []string
}

// createdTable is the statement that creates a table, as the migrations of this program
// write it: indentation, schema, table and columns. A column has a line of its own, and
// createdColumn finds it.
var (
	createdTable  = regexp.MustCompile(`(?m)^( *)CREATE TABLE IF NOT EXISTS "(\w+)"\.(\w+)( \(\n)?`)
	createdColumn = regexp.MustCompile(`(?m)^ *([a-z]\w*) `)
)

// adopts reports whether a table without Sexton's comment has the form of Sexton's, as
// after a dump without comments.
func (e expected) adopts(there relation) bool {
	return (there.kind == "r" || there.kind == "p") && !slices.ContainsFunc(e.columns,
		func(column string) bool { return there.typeOf(column) == "" })
}

// tables returns the tables of the newest version of the component. They are read from
// the SQL files, so there is no second list.
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

//nolint:gochecknoglobals // the files are read once
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

// lacking names the tables of the component that are missing.
func (db Database) lacking(look inspection, c component) (missing []string) {
	for _, e := range c.tables() {
		if e.tracked && c.queue == "" {
			continue // Views stand for it.
		}
		there, name := look.own[e.name], identity(schema, e.name)
		if e.tracked {
			there, name = look.tracked[e.name], identity(db.TrackedSchema, e.name)
		}
		if !there.there() {
			missing = append(missing, name)
		}
	}
	return missing
}

// due are the migrations of a component that Up runs: the ones that are newer than its
// version. If a table of an installed component is missing it is all of them, because one
// component may add columns to a table of another.
func (db Database) due(look inspection, c component) []Migration {
	version := look.versions[c.name]
	if c.name != River && slices.ContainsFunc(db.components(), func(other component) bool {
		return other.name != River && look.versions[other.name] > 0 && len(db.lacking(look, other)) > 0
	}) {
		version = 0
	}
	return slices.DeleteFunc(c.migrations(), func(m Migration) bool { return m.Version <= version })
}
