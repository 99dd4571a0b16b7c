package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// check returns why Up cannot succeed, if that can be known before it changes anything.
func (db Database) check(look inspection) error {
	if err := db.fits(look); err != nil {
		return err
	}
	if err := db.conflicts(look); err != nil {
		return err
	}
	if err := db.requirements(look); err != nil {
		return err
	}
	creates := slices.ContainsFunc(db.components(), func(c component) bool {
		return c.queue != "" &&
			!look.tracked[c.queue].there()
	})
	switch tracked := quote(db.TrackedSchema); {
	case !creates:
	case !look.hasTracked:
		return fmt.Errorf("schema %s of the tracked tables does not exist; correct databases.%s.schema", tracked,
			db.Name)
	case !look.mayCreateInTracked:
		return &PrivilegeError{
			Database: db.Name, Role: look.role, Missing: "may not create tables in schema " + tracked,
			Grant: fmt.Sprintf("GRANT USAGE, CREATE ON SCHEMA %s TO %s", tracked, quote(look.role)),
		}
	}
	return nil
}

// fits refuses a server that is too old, a schema newer than this program, and deletion
// tables in another place than configured.
func (db Database) fits(look inspection) error {
	if found := pgcatalog.Untested(look.server); found.Severity == problem.Error {
		return fmt.Errorf("database %s: %s", db.Name, found)
	}
	for _, c := range allComponents() {
		if current := look.versions[c.name]; current > latest(c) {
			return db.unfit(c.name, "run a newer sexton",
				"component %s is at version %d, this binary knows version %d; "+
					"this binary is older than the schema, use a newer one", c.name, current, latest(c))
		}
	}
	for _, c := range db.components() {
		if installed := look.elsewhere[c.queue]; c.queue != "" && installed != "" && !look.tracked[c.queue].there() {
			const fix = "set the schema back, or run `sexton migrate down` with the old configuration first"
			return &SchemaError{Object: installed, Fix: fix, text: fmt.Sprintf(
				"database %s has its %s in %s, but the configuration puts them into %s; "+fix, db.Name, c.holds,
				installed, db.queueID(c))}
		}
	}
	return nil
}

// conflict reports names that Sexton needs and that other objects have.
func (db Database) conflict(fix string, objects ...string) error {
	return fmt.Errorf("database %s holds %s, not created by Sexton; nothing was changed: %s", db.Name,
		strings.Join(objects, ", "), fix)
}

// conflicts refuses tables that have neither Sexton's comment nor the form of Sexton's.
// In the schema sexton that is for tables of a component that was not installed yet.
func (db Database) conflicts(look inspection) error {
	var taken []string
	for _, c := range db.components() {
		for _, e := range c.tables() {
			there := look.own[e.name]
			if table := slices.Contains([]string{"r", "p", "v", "m", "f"}, there.kind); table && !e.tracked &&
				!there.ours && look.versions[c.name] == 0 &&
				c.name != River && !e.adopts(there) {
				taken = append(taken, identity(schema, e.name))
			}
		}
	}
	if len(taken) > 0 {
		return db.conflict("schema "+schema+" belongs to Sexton; move what others have there", slices.Compact(taken)...)
	}
	for _, c := range db.components() {
		if queue := look.tracked[c.queue]; queue.there() && len(c.columns) == 0 && !queue.ours &&
			!slices.ContainsFunc(c.tables(), func(e expected) bool {
				return e.name == c.queue && e.adopts(queue)
			}) {
			return db.conflict("rename that table, or point the database's schema elsewhere", db.queueID(c))
		}
	}
	return nil
}

// ComponentStatus compares a component's version in the database with this program's.
type ComponentStatus struct {
	Component string `json:"component"`
	// Enabled is false for a component that is installed but no longer configured.
	Enabled bool  `json:"enabled"`
	Current int64 `json:"current"`
	Latest  int64 `json:"latest"`
	// Pending are the migrations that Up would run, in order.
	Pending []Migration `json:"pending"`
	// FunctionsDiffer reports that the functions come from another release.
	FunctionsDiffer bool `json:"functions_differ,omitempty"`
}

// Status returns the components that are enabled or installed. It changes nothing.
func Status(ctx context.Context, db Database) ([]ComponentStatus, error) {
	look, err := db.look(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at schema of database %s: %w", db.Name, err)
	}
	enabled := render.Each(db.components(), func(c component) string { return c.name })
	statuses := []ComponentStatus{}
	for _, c := range allComponents() {
		status := ComponentStatus{
			Component: c.name, Current: look.versions[c.name], Latest: latest(c), Pending: []Migration{},
			Enabled: slices.Contains(enabled, c.name),
		}
		if !status.Enabled && status.Current == 0 {
			continue
		}
		status.FunctionsDiffer = status.Enabled && status.Current > 0 && db.functionsDiffer(look, c)
		if status.Enabled {
			status.Pending = db.due(look, c)
		}
		statuses = append(statuses, status)
	}
	return statuses, nil
}

// OtherFunctionsText is the message about functions that OtherFunctions has found.
const OtherFunctionsText = "its functions come from another release; run `sexton migrate up` of the newest one"

// OtherFunctions names the components whose functions differ from this release's. While
// workers of two releases run, it is expected for one of them.
func OtherFunctions(ctx context.Context, db Database) (components []string, _ error) {
	statuses, err := Status(ctx, db)
	for _, c := range statuses {
		if c.FunctionsDiffer {
			components = append(components, c.Component)
		}
	}
	return components, err
}

// Check returns nil if this program can work with the database's schema, else a
// *SchemaError. It changes nothing.
func Check(ctx context.Context, db Database) error {
	look, err := db.look(ctx)
	if err != nil {
		return fmt.Errorf("look at schema of database %s: %w", db.Name, err)
	}
	if err := db.fits(look); err != nil {
		return err
	}
	for _, c := range db.components() {
		const up = "sexton migrate up"
		name, missing := c.name, append(db.lacking(look, c), db.lackingFunctions(look, c)...)
		switch current := look.versions[name]; {
		case current == 0:
			return db.unfit(name, up, "component %s is not installed; run `%s`", name, up)
		case current < latest(c):
			return db.unfit(name, up, "component %s is at version %d, this binary needs version %d; run `%s`", name,
				current, latest(c), up)
		case len(missing) > 0:
			return db.unfit(name, up, "component %s lacks %s; run `%s`", name, strings.Join(missing, ", "), up)
		}
	}
	return nil
}
