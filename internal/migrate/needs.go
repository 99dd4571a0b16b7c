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

// Need is a table of the application that a component needs. A test compares the lists in
// docs/ with the needs.
type Need struct {
	// Table is a table in the tracked schema. Key is its configuration key within the
	// component's section. If Key is empty, the name is fixed.
	Table, Key string
	// With, if set, makes the need conditional: the need applies only if all these tables
	// exist.
	With    []string
	Columns []Column
}

// Column is a column with a required type. Key is its configuration key. A configured
// column must exist even if it is optional. Without a key, an optional column may be
// missing.
type Column struct {
	Name, Key, Type string
	Optional        bool
}

// These constants are the required types of columns. "" means any type.
const (
	Integer = "integer"
	Date    = "date"
	// AnyKey means any supported type of keys. SameKey means the type of the same table's
	// key.
	AnyKey  = "bigint, integer, uuid or text"
	SameKey = "the type of the key"
	// Time means any type that the column of a retention rule may have.
	Time = "timestamptz, timestamp, date, integer or bigint"
)

// membership holds the columns of GitLab's table members that define the owners of a group.
//
//nolint:gochecknoglobals // constant
var membership = []string{"user_id", "source_type", "source_id", "access_level", "state", "requested_at", "expires_at"}

// columns returns a list of columns with the same required type.
func columns(kind string, names ...string) []Column {
	return render.Each(names, func(name string) Column { return Column{Name: name, Type: kind} })
}

// configured returns the columns that have a name in the configuration.
func configured(list ...Column) []Column {
	return slices.DeleteFunc(list, func(c Column) bool { return c.Name == "" })
}

// isTable reports whether the relation is an ordinary or partitioned table.
func (r relation) isTable() bool { return r.kind == "r" || r.kind == "p" }

// fits reports whether a column of the table has the required type.
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

// unmet returns the problems of the table.
func (n Need) unmet(component string, db Database, snap snapshot) (found problem.List) {
	report := func(key, fix, format string, args ...any) {
		found.Add(problem.Problem{
			Key:     strings.TrimSuffix(component+"."+key, "."),
			Message: fmt.Sprintf(format, args...), Fix: fix,
		})
	}
	table := snap.tracked[n.Table]
	switch {
	case slices.ContainsFunc(n.With, func(name string) bool { return !snap.tracked[name].isTable() }):
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

// readUnmet returns the problems of the application's tables and rules, by component.
func (db Database) readUnmet(ctx context.Context, on dbsqlc.DBTX, snap snapshot) (map[string]problem.List, error) {
	all := map[string]problem.List{}
	for _, c := range db.components() {
		for _, n := range c.needs {
			all[c.name] = append(all[c.name], n.unmet(c.name, db, snap)...)
		}
		if queue := snap.tracked[c.queue]; queue.kind == "r" {
			all[c.name] = append(all[c.name], Need{Table: c.queue, Columns: columns("", c.columns...)}.unmet(c.name, db,
				snap)...)
		} else if queue.exists() {
			all[c.name] = append(all[c.name], problem.Problem{
				Severity: problem.Error, Key: c.name, Message: db.queueID(c) + " is not an ordinary table",
				Fix: "rename it",
			})
		}
	}
	for _, r := range db.rules(snap) {
		if slices.Contains(r.arguments, "") {
			continue // The check of the columns reports the unsupported type.
		}
		wrong, fix, err := pgcatalog.RuleProblem(ctx, on, db.TrackedSchema, r.function, "text", r.arguments...)
		if err != nil {
			return nil, problem.Doing(err, "read the function %s", r.function)
		}
		if wrong != "" {
			all[r.component] = append(all[r.component], problem.Problem{
				Severity: problem.Error, Key: r.component + "." + r.key, Message: wrong, Fix: fix,
			})
		}
	}
	return all, nil
}

// requirements returns an error if the application's tables do not fit a component. It
// does not check installed components with GitLab's tables: if the application's tables
// change later, the job reports it. It checks configured tables of users and groups each
// time, because the configuration may have changed.
func (db Database) requirements(snap snapshot) error {
	var found problem.List
	for _, c := range db.components() {
		if !db.gitlab(c.name) || snap.versions[c.name] == 0 || len(db.missingTables(snap, c)) > 0 {
			found.Add(snap.unmet[c.name]...)
		}
	}
	return found.Err()
}

// Unmet returns the problems of the application's tables and rules for the enabled
// components.
func Unmet(ctx context.Context, db Database) (found problem.List, _ error) {
	snap, err := db.readSnapshotOnce(ctx)
	for _, c := range db.components() {
		found.Add(snap.unmet[c.name]...)
	}
	return found, problem.Doing(err, "check the tables of database %s", db.Name)
}
