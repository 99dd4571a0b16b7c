package migrate

import (
	"fmt"
	"strings"
)

// SchemaError says that a component's version in the database is not the one that this program works
// with.
type SchemaError struct {
	Database  string
	Component string
	// Current is the version in the database, 0 where the component is not installed; Want is the one
	// that this program brings.
	Current, Want int64
	// Object is the table that is missing although the version says it is there; usually empty.
	Object string
	// Functions says that the versions fit and the functions are those of an earlier release, or of one that this database does not know.
	Functions bool
}

// Error says what differs and what to run.
func (e *SchemaError) Error() string {
	var what string
	switch {
	case e.Object != "":
		what = fmt.Sprintf("table %s of component %s has been removed; "+
			"restore it, or run `sexton migrate down --force` and `sexton migrate up`", e.Object, e.Component)
	case e.Functions:
		what = fmt.Sprintf("functions of component %s come from another release than this binary; run `sexton migrate up` of the newer one", e.Component)
	case e.Current > e.Want:
		what = fmt.Sprintf("component %s is at version %d, this binary knows version %d; "+
			"this binary is older than the schema, use a newer one", e.Component, e.Current, e.Want)
	case e.Current == 0:
		what = fmt.Sprintf("component %s is not installed; run `sexton migrate up`", e.Component)
	default:
		what = fmt.Sprintf("component %s is at version %d, this binary needs version %d; run `sexton migrate up`",
			e.Component, e.Current, e.Want)
	}
	return fmt.Sprintf("schema of database %s: %s", e.Database, what)
}

// ConflictError says that names which Sexton needs are taken by objects that it did not create.
type ConflictError struct {
	Database string
	// Objects are the names, schema-qualified.
	Objects []string
	Fix     string
}

// Error names the objects and the way out.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("database %s holds %s, not created by Sexton; nothing was changed: %s", e.Database, strings.Join(e.Objects, ", "), e.Fix)
}

// DependentError says that objects of others are built on Sexton's tables, so that those cannot be removed.
type DependentError struct {
	Database string
	// Objects are views and tables, schema-qualified.
	Objects []string
}

// Error names the objects.
func (e *DependentError) Error() string {
	return fmt.Sprintf("database %s: %s depend on Sexton's tables; nothing was changed: drop them first", e.Database, strings.Join(e.Objects, ", "))
}

// PlacementError says that a deletion table lives in another schema than the configured one.
type PlacementError struct {
	Database   string
	Installed  string
	Configured string
}

// Error names both places and the two ways out.
func (e *PlacementError) Error() string {
	var what string
	for _, f := range families() {
		if f.queue != "" && strings.HasSuffix(e.Installed, "."+f.queue) {
			what = f.holds
		}
	}
	return fmt.Sprintf("database %s has its %s in %s, but the configuration puts them into %s; "+
		"set the schema back, or run `sexton migrate down` with the old configuration first",
		e.Database, what, e.Installed, e.Configured)
}

// RequirementError says that the application lacks what a component works with.
type RequirementError struct {
	Database  string
	Component string
	// Table is schema-qualified. Columns are the ones that it lacks; empty where there is no such table.
	Table   string
	Columns []string
}

// Error names the table and the columns.
func (e *RequirementError) Error() string {
	what := "the table " + e.Table
	if len(e.Columns) > 0 {
		what += " with the columns " + strings.Join(e.Columns, ", ")
	}
	return fmt.Sprintf("database %s: component %s needs %s, which the application has to bring along; nothing was changed: "+
		"create it, point the database's schema to where it is, or disable the component", e.Database, e.Component, what)
}

// PrivilegeError says that the role in use lacks a privilege.
type PrivilegeError struct {
	Database string
	Role     string
	// Missing names the right that the role lacks, Grant the statement that gives it.
	Missing string
	Grant   string
}

// Error names the role, what it lacks and the statement that grants it.
func (e *PrivilegeError) Error() string {
	return fmt.Sprintf("role %s in database %s: %s; run: %s", e.Role, e.Database, e.Missing, e.Grant)
}

// PendingError says that Down would throw away work.
type PendingError struct {
	Database string
	// Work counts, by component, what waits: parents whose children are still to be cleaned up, users to be deleted, placeholder users
	// without an owner, groups whose destruction has begun, and objects of deleted diffs.
	Work map[string]int64
	// TriggersRemoved reports that they came in while the triggers were being removed, which is done.
	TriggersRemoved bool
}

// Error tells how much is pending and what to do.
func (e *PendingError) Error() string {
	var texts []string
	for _, f := range families() {
		if n := e.Work[f.name]; n > 0 {
			texts = append(texts, f.said(e.Database, n))
		}
	}
	text := strings.Join(texts, "; ")
	if e.TriggersRemoved {
		text += "; the triggers are already removed, so deletions are no longer recorded"
	}
	return text
}
