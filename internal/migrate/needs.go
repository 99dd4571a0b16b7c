package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// Need is a table of the application's that a component works with. docs/ shows it as it
// is checked.
type Need struct {
	// Table is in the tracked schema. Key is the configuration's key for it below the
	// component's; empty: the name is fixed.
	Table, Key string
	// With names the tables that must all be there for the need to count; empty: it
	// always counts.
	With    []string
	Columns []Column
}

// Column is one that a table must have, of the type. Key is the configuration's key for
// it, which names no optional column unless the table has it. Without a key, the
// component works without an optional column.
type Column struct {
	Name, Key, Type string
	Optional        bool
}

// The types that a column may have to have; empty: any.
const (
	Integer = "integer"
	Date    = "date"
	// AnyKey is a type of keys, SameKey that of the key of the same table.
	AnyKey  = "bigint, integer, uuid or text"
	SameKey = "that of the key"
	// Time is the type of the column of a retention rule.
	Time = "timestamptz, timestamp, date, integer or bigint"
)

// membership has the columns of GitLab's members that say who owns a group.
//
//nolint:gochecknoglobals // constant
var membership = []string{"user_id", "source_type", "source_id", "access_level", "state", "requested_at", "expires_at"}

// columns are some of one type.
func columns(kind string, names ...string) []Column {
	return render.Each(names, func(name string) Column { return Column{Name: name, Type: kind} })
}

// configured leaves out columns that the configuration does not name.
func configured(list ...Column) []Column {
	return slices.DeleteFunc(list, func(c Column) bool { return c.Name == "" })
}

// isTable tells ordinary and partitioned tables from views.
func (r relation) isTable() bool { return r.kind == "r" || r.kind == "p" }

// fits reports whether a column that exists has the type.
func (n Need) fits(table relation, c Column) bool {
	kind := table.keyType(c.Name)
	switch c.Type {
	case Integer:
		return kind == "bigint"
	case Date:
		return table.typeOf(c.Name) == "date"
	case AnyKey:
		return kind != ""
	case SameKey:
		return kind == table.keyType(n.Columns[0].Name)
	}
	return true
}

// unmet returns what the table lacks.
func (n Need) unmet(component string, db Database, look inspection) (found problem.List) {
	report := func(key, fix, format string, args ...any) {
		found.Add(problem.Problem{
			Key:     strings.TrimSuffix(component+"."+key, "."),
			Message: fmt.Sprintf(format, args...), Fix: fix,
		})
	}
	table := look.tracked[n.Table]
	switch {
	case slices.ContainsFunc(n.With, func(name string) bool { return !look.tracked[name].isTable() }):
		return nil
	case !table.isTable():
		fix := "create it, disable the component,"
		if n.Key != "" {
			fix = "correct the name,"
		}
		report(n.Key, fmt.Sprintf("%s or set databases.%s.schema to its schema", fix, db.Name),
			"there is no table %s in schema %s", n.Table, db.TrackedSchema)
		return found
	}
	for _, c := range n.Columns {
		switch kind := table.typeOf(c.Name); {
		case kind == "" && (c.Key != "" || !c.Optional):
			report(c.Key, problem.Meant(c.Name, table.columns, "add it"), "table %s has no column %s", n.Table, c.Name)
		case kind != "" && !n.fits(table, c):
			report(c.Key, "name another column, or change its type", "%s.%s is of type %s instead of %s", n.Table,
				c.Name, kind, c.Type)
		}
	}
	return found
}

// readUnmet returns what the application's tables and rules lack for each component.
func (db Database) readUnmet(ctx context.Context, on dbsqlc.DBTX, look inspection) (map[string]problem.List, error) {
	all := map[string]problem.List{}
	for _, c := range db.components() {
		for _, n := range c.needs {
			all[c.name] = append(all[c.name], n.unmet(c.name, db, look)...)
		}
		if queue := look.tracked[c.queue]; queue.kind == "r" {
			all[c.name] = append(all[c.name], Need{Table: c.queue, Columns: columns("", c.columns...)}.unmet(c.name, db,
				look)...)
		} else if queue.there() {
			all[c.name] = append(all[c.name], problem.Problem{
				Severity: problem.Error, Key: c.name, Message: db.queueID(c) + " is not an ordinary table",
				Fix: "rename it",
			})
		}
	}
	for _, r := range db.rules(look) {
		if slices.Contains(r.arguments, "") {
			continue // The column has none of the types.
		}
		wrong, fix, err := pgcatalog.RuleProblem(ctx, on, db.TrackedSchema, r.function, "text", r.arguments...)
		if err != nil {
			return nil, problem.Doing(err, "look at the function %s", r.function)
		}
		if wrong != "" {
			all[r.component] = append(all[r.component], problem.Problem{
				Severity: problem.Error, Key: r.component + "." + r.key, Message: wrong, Fix: fix,
			})
		}
	}
	return all, nil
}

// requirements refuses what the application's tables do not fit. A component of GitLab's
// shape that is installed may find the application changed; that is for the job to
// report. The configured tables of users and groups may be others each time.
func (db Database) requirements(look inspection) error {
	var found problem.List
	for _, c := range db.components() {
		if !db.gitlab(c.name) || look.versions[c.name] == 0 || len(db.lacking(look, c)) > 0 {
			found.Add(look.unmet[c.name]...)
		}
	}
	return found.Err()
}

// Unmet returns what the application's tables and rules lack for the enabled components.
// It changes nothing.
func Unmet(ctx context.Context, db Database) (found problem.List, _ error) {
	look, err := db.look(ctx)
	for _, c := range db.components() {
		found.Add(look.unmet[c.name]...)
	}
	return found, problem.Doing(err, "look at the tables of database %s", db.Name)
}
