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

// check returns the errors that Up can detect before it changes anything.
func (db Database) check(snap snapshot) error {
	if err := db.fits(snap); err != nil {
		return err
	}
	if err := db.conflicts(snap); err != nil {
		return err
	}
	if err := db.requirements(snap); err != nil {
		return err
	}
	creates := slices.ContainsFunc(db.components(), func(c component) bool {
		return c.queue != "" &&
			!snap.tracked[c.queue].exists()
	})
	switch tracked := quote(db.TrackedSchema); {
	case !creates:
	case !snap.hasTracked:
		return fmt.Errorf("schema %s of the tracked tables does not exist; correct databases.%s.schema", tracked,
			db.Name)
	case !snap.mayCreateInTracked:
		return &PrivilegeError{
			Database: db.Name, Role: snap.role, Missing: "may not create tables in schema " + tracked,
			Grant: fmt.Sprintf("GRANT USAGE, CREATE ON SCHEMA %s TO %s", tracked, quote(snap.role)),
		}
	}
	return nil
}

// fits returns an error if the server is too old, the schema is newer than this program,
// or a deletion table is in another schema than configured.
func (db Database) fits(snap snapshot) error {
	if found := pgcatalog.Untested(snap.server); found.Severity == problem.Error {
		return fmt.Errorf("database %s: %s", db.Name, found)
	}
	for _, c := range allComponents() {
		if current := snap.versions[c.name]; current > latest(c) {
			return db.unfit(c.name, "run a newer sexton",
				"component %s is at version %d, this binary supports version %d; "+
					"this binary is older than the schema, use a newer one", c.name, current, latest(c))
		}
	}
	for _, c := range db.components() {
		if installed := snap.elsewhere[c.queue]; c.queue != "" && installed != "" && !snap.tracked[c.queue].exists() {
			const fix = "restore the former schema in the configuration, or run `sexton migrate down` with the old configuration first"
			return &SchemaError{Object: installed, Fix: fix, text: fmt.Sprintf(
				"database %s has its %s in %s, but the configuration puts them into %s; "+fix, db.Name, c.holds,
				installed, db.queueID(c))}
		}
	}
	return nil
}

// conflict returns the error for existing objects with names that Sexton needs.
func (db Database) conflict(fix string, objects ...string) error {
	return fmt.Errorf("database %s has %s, which Sexton did not create; nothing was changed: %s", db.Name,
		strings.Join(objects, ", "), fix)
}

// conflicts returns an error if tables with Sexton's names have neither Sexton's comment
// nor the columns of Sexton's tables. In the schema sexton it checks only the components
// that are not installed yet.
func (db Database) conflicts(snap snapshot) error {
	var taken []string
	for _, c := range db.components() {
		for _, e := range c.tables() {
			there := snap.own[e.name]
			if table := slices.Contains([]string{"r", "p", "v", "m", "f"}, there.kind); table && !e.tracked &&
				!there.ours && snap.versions[c.name] == 0 &&
				c.name != River && !e.adopts(there) {
				taken = append(taken, identity(schema, e.name))
			}
		}
	}
	if len(taken) > 0 {
		return db.conflict("schema "+schema+" is reserved for Sexton; move these tables to another schema", slices.Compact(taken)...)
	}
	for _, c := range db.components() {
		if queue := snap.tracked[c.queue]; queue.exists() && len(c.columns) == 0 && !queue.ours &&
			!slices.ContainsFunc(c.tables(), func(e expected) bool {
				return e.name == c.queue && e.adopts(queue)
			}) {
			return db.conflict("rename that table, or configure another schema for the database", db.queueID(c))
		}
	}
	return nil
}

// ComponentStatus describes a component's version in the database and the latest version
// of this program.
type ComponentStatus struct {
	Component string `json:"component"`
	// Enabled is false for a component that is installed but no longer configured.
	Enabled bool  `json:"enabled"`
	Current int64 `json:"current"`
	Latest  int64 `json:"latest"`
	// Pending holds the migrations that Up would run, in order.
	Pending []Migration `json:"pending"`
	// FunctionsDiffer reports that the installed functions differ from the functions of
	// this release.
	FunctionsDiffer bool `json:"functions_differ,omitempty"`
}

// Status returns the components that are enabled or installed.
func Status(ctx context.Context, db Database) ([]ComponentStatus, error) {
	snap, err := db.readSnapshotOnce(ctx)
	if err != nil {
		return nil, fmt.Errorf("inspect schema of database %s: %w", db.Name, err)
	}
	enabled := render.Each(db.components(), func(c component) string { return c.name })
	statuses := []ComponentStatus{}
	for _, c := range allComponents() {
		status := ComponentStatus{
			Component: c.name, Current: snap.versions[c.name], Latest: latest(c), Pending: []Migration{},
			Enabled: slices.Contains(enabled, c.name),
		}
		if !status.Enabled && status.Current == 0 {
			continue
		}
		status.FunctionsDiffer = status.Enabled && status.Current > 0 && db.functionsDiffer(snap, c)
		if status.Enabled {
			status.Pending = db.due(snap, c)
		}
		statuses = append(statuses, status)
	}
	return statuses, nil
}

// OtherFunctionsText is the message for components that OtherFunctions returns.
const OtherFunctionsText = "its functions are from another release; run `sexton migrate up` of the newest release"

// OtherFunctions returns the components whose installed functions differ from the
// functions of this release. While workers of two releases run, that is expected for one
// of them.
func OtherFunctions(ctx context.Context, db Database) (components []string, _ error) {
	statuses, err := Status(ctx, db)
	for _, c := range statuses {
		if c.FunctionsDiffer {
			components = append(components, c.Component)
		}
	}
	return components, err
}

// Check returns a *SchemaError if this program cannot work with the database's schema.
func Check(ctx context.Context, db Database) error {
	snap, err := db.readSnapshotOnce(ctx)
	if err != nil {
		return fmt.Errorf("inspect schema of database %s: %w", db.Name, err)
	}
	if err := db.fits(snap); err != nil {
		return err
	}
	for _, c := range db.components() {
		const up = "sexton migrate up"
		name, missing := c.name, append(db.missingTables(snap, c), db.missingFunctions(snap, c)...)
		switch current := snap.versions[name]; {
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
