package migrate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// expected is a relation that a component's migrations or functions create, with the columns that it needs.
type expected struct {
	tracked bool
	name    string
	// types are those of columns, at the same places; not those of tables that an application may have created.
	columns, types []string
}

// The statements that create relations, as the SQL files of this program write them.
var (
	createdTable = regexp.MustCompile(`(?s)CREATE TABLE IF NOT EXISTS "(\w+)"\.(\w+)( PARTITION OF|.*?\n *\))`)
	createdOther = regexp.MustCompile(`CREATE (?:OR REPLACE )?(?:VIEW|SEQUENCE)(?: IF NOT EXISTS)? "(\w+)"\.(\w+)`)
	createdIndex = regexp.MustCompile(`CREATE (?:UNIQUE )?INDEX IF NOT EXISTS (\w+)\s+ON "sexton"\.`)
	column       = regexp.MustCompile(`(?m)^ +([a-z_0-9]+) (double precision|[a-z0-9]+)((?:\[\])?)`)
	addedColumn  = regexp.MustCompile(`(?m)ADD COLUMN IF NOT EXISTS ([a-z_0-9]+) (double precision|[a-z0-9]+)((?:\[\])?)`)
	alteredTable = regexp.MustCompile(`(?s)ALTER TABLE "(\w+)"\.(\w+)\s+ADD COLUMN.*?;`)
)

// shape returns what the newest version of the component consists of. It is read from the SQL files, so there is no second list.
func (c component) shape() []expected {
	if c.name == River {
		list := make([]expected, 0, len(riverTables()))
		for _, name := range riverTables() {
			list = append(list, expected{name: name})
		}
		return list
	}
	return shapes()[c.name]
}

//nolint:gochecknoglobals // the files are read once
var shapes = sync.OnceValue(func() map[string][]expected {
	all := map[string][]expected{}
	for _, c := range allComponents() {
		var text strings.Builder
		for _, m := range c.migrations() {
			text.WriteString(c.text(m) + "\n")
		}
		for _, f := range c.functions(Database{TrackedSchema: "public"}) {
			text.WriteString(f.text)
		}
		all[c.name] = c.read(text.String())
	}
	return all
})

func (c component) read(sql string) (list []expected) {
	for _, found := range createdTable.FindAllStringSubmatch(sql, -1) {
		e := expected{tracked: found[1] == "public", name: found[2]}
		e.add(column.FindAllStringSubmatch(found[3], -1), c.adopts(e))
		list = append(list, e)
		if !e.tracked && strings.Contains(found[3], "PRIMARY KEY") {
			list = append(list, expected{name: e.name + "_pkey"})
		}
	}
	for _, found := range createdOther.FindAllStringSubmatch(sql, -1) {
		list = append(list, expected{name: found[2]})
	}
	for _, found := range createdIndex.FindAllStringSubmatch(sql, -1) {
		list = append(list, expected{name: found[1]})
	}
	for _, found := range alteredTable.FindAllStringSubmatch(sql, -1) {
		e := expected{tracked: found[1] == "public", name: found[2]}
		e.add(addedColumn.FindAllStringSubmatch(found[0], -1), c.adopts(e))
		list = append(list, e)
	}
	return list
}

// adopts reports whether an application may have created the table.
func (c component) adopts(e expected) bool { return e.tracked && len(c.columns) > 0 }

func (e *expected) add(columns [][]string, untyped bool) {
	for _, found := range columns {
		kind := strings.ReplaceAll(found[2], "timestamptz", "timestamp with time zone") + found[3]
		if untyped {
			kind = ""
		}
		e.columns, e.types = append(e.columns, found[1]), append(e.types, kind)
	}
}

// lacking names the tables, columns, indexes and views of the component that are missing or different.
func (db Database) lacking(look inspection, c component) (missing []string) {
	for _, e := range c.shape() {
		there, name := look.own[e.name], identity(schema, e.name)
		if e.tracked {
			there, name = look.tracked[e.name], identity(db.TrackedSchema, e.name)
		}
		if !there.there() {
			missing = append(missing, name)
			continue
		}
		for i, column := range e.columns {
			at := slices.Index(there.columns, column)
			switch want := e.types[i]; {
			case at < 0:
				missing = append(missing, name+"."+column)
			case want != "" && there.types[at] != want:
				missing = append(missing, fmt.Sprintf("%s.%s of type %s (it has %s)", name, column, want, there.types[at]))
			}
		}
	}
	return missing
}

// due are the migrations that Up runs: none if the component is complete.
func (db Database) due(look inspection, c component) []Migration {
	version := look.versions[c.name]
	if c.name != River && len(db.lacking(look, c)) > 0 {
		version = 0
	}
	return slices.DeleteFunc(c.migrations(), func(m Migration) bool { return m.Version <= version })
}

// misshapen is the error about objects that migrations could not add or correct.
func (db Database) misshapen(c component, missing []string) error {
	const fix = "rename or drop the table, and run `sexton migrate up` again"
	return &SchemaError{Object: "component " + c.name, Fix: fix, text: fmt.Sprintf(
		"database %s lacks %s, and a table of that name has another form; nothing was changed: %s", db.Name, strings.Join(missing, ", "), fix)}
}
