package riverjobs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sexton/internal/config"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/render"
)

// Generations returns one generation for each enabled job that has definitions or lists.
func Generations(c *config.Config, defs []definitions.Definition) (found []Generation) {
	jobs := Jobs(c)
	for _, job := range jobs {
		if job.entries == nil {
			continue
		}
		g := Generation{Kind: job.Kind, Databases: job.Databases, Entries: job.entries(defs)}
		for _, other := range jobs {
			if other.Kind == job.Kind || other.listsOf == job.Kind {
				g.Kinds = append(g.Kinds, other.Kind)
			}
		}
		for _, name := range job.Databases {
			g.Keys = append(g.Keys, job.LeaseKey(name))
		}
		if _, each := job.Args["database"]; each {
			g.Prefix = job.LeaseKey("")
		}
		found = append(found, newGeneration(g))
	}
	return found
}

// DefinitionEntry returns a definition as one line, without limits and labels of workers.
func DefinitionEntry(c *config.Config, d definitions.Definition) string {
	entry := fmt.Sprintf("%s %q -> %s %q %s", tableEntry(c, d.Child, d.Database), d.Columns,
		tableEntry(c, d.Parent, ""), d.ParentColumns, d.OnDelete)
	if d.OnDelete == definitions.UpdateColumn {
		entry += fmt.Sprintf(" %q=%q", d.TargetColumn, d.TargetValue)
	}
	entry += conditionsEntry(d.Conditions)
	if d.CleanerClass != "" {
		entry += fmt.Sprintf(" cleaner %q", d.CleanerClass)
	}
	if d.Event != nil {
		entry += " event" + eventColumns(d.Event)
	}
	return entry
}

// eventColumns returns the columns of an event after a space, or "" if there are no
// columns.
func eventColumns(columns []string) string {
	if len(columns) == 0 {
		return ""
	}
	return fmt.Sprintf(" %q", columns)
}

func conditionsEntry(conditions []definitions.Condition) string {
	terms := render.Each(conditions, func(condition definitions.Condition) string {
		return fmt.Sprintf("%q=%q", condition.Column, condition.Value)
	})
	if len(terms) == 0 {
		return ""
	}
	slices.Sort(terms)
	return " where " + strings.Join(terms, " and ")
}

// tableEntry returns the name of a table with its schema. If there are several databases
// and the configuration determines the table's database, the name includes that database.
func tableEntry(c *config.Config, name definitions.Name, database string) string {
	var claims, schemas []string
	for _, db := range c.Databases {
		site := loosefk.Site{Name: db.Name, Schema: db.Schema, Tables: db.Tables}
		if len(c.Databases) > 1 && (database == db.Name || database == "" && site.Claims(name)) {
			claims, schemas = append(claims, db.Name), append(schemas, db.Schema)
		}
	}
	where := ""
	if len(claims) > 0 {
		where = strings.Join(claims, "+") + ":"
	} else {
		for _, db := range c.Databases {
			schemas = append(schemas, db.Schema)
		}
	}
	slices.Sort(schemas)
	return fmt.Sprintf("%s%q.%q", where, cmp.Or(name.Schema, strings.Join(slices.Compact(schemas), "|")), name.Table)
}

// listEntry returns the line for one column of a list. If database is "", the table is in
// the jobs database.
func listEntry(c *config.Config, list, database, table, column string) string {
	db, _ := c.Database(cmp.Or(database, c.Jobs.Database))
	if database != "" && database != c.Jobs.Database {
		list += " of " + database
	}
	name, err := definitions.ParseName(table)
	if err != nil {
		name.Table = table // The error is reported when the list is bound to the database.
	}
	return fmt.Sprintf("%s %q.%q %q", list, cmp.Or(name.Schema, db.Schema), name.Table, column)
}

func columnEntries(c *config.Config, list string, columns []config.TableColumns) []string {
	var entries []string
	for _, entry := range columns {
		for _, column := range entry.Columns {
			entries = append(entries, listEntry(c, list, "", entry.Table, column))
		}
	}
	return entries
}
