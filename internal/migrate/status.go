package migrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// ComponentStatus compares a component's version in the database with this program's.
type ComponentStatus struct {
	Component string `json:"component"`
	// Enabled is false for a component that is installed but no longer configured.
	Enabled bool  `json:"enabled"`
	Current int64 `json:"current"`
	Latest  int64 `json:"latest"`
	// Pending are the migrations that Up would run, in order.
	Pending []Migration `json:"pending"`
	// FunctionsDiffer says that Up would install the functions anew, FunctionsLater that it would put them back to an earlier release's.
	FunctionsDiffer bool `json:"functions_differ,omitempty"`
	FunctionsLater  bool `json:"functions_later,omitempty"`
}

// Status returns the components that are enabled or installed. It changes nothing.
func Status(ctx context.Context, db Database) ([]ComponentStatus, error) {
	look, err := db.look(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at schema of database %s: %w", db.Name, err)
	}
	enabled := db.components()
	statuses := []ComponentStatus{}
	for _, c := range allComponents() {
		status := ComponentStatus{
			Component: c.name(), Current: look.versions[c.name()], Latest: latest(c), Pending: []Migration{},
			Enabled: slices.ContainsFunc(enabled, func(e component) bool { return e.name() == c.name() }),
		}
		if !status.Enabled && status.Current == 0 {
			continue
		}
		status.FunctionsDiffer = status.Enabled && status.Current > 0 && db.functionsDiffer(look, c)
		status.FunctionsLater = status.FunctionsDiffer && !db.functionsOutdated(look, c)
		for _, m := range c.migrations() {
			if status.Enabled && m.Version > status.Current {
				status.Pending = append(status.Pending, m)
			}
		}
		statuses = append(statuses, status)
	}
	return statuses, nil
}

// LaterText says what comes of functions that LaterFunctions has found.
const LaterText = "the functions are a later release's; `sexton migrate up` of this one would put its own back"

// LaterFunctions names the components whose functions a later release has installed. This one works with them.
func LaterFunctions(ctx context.Context, db Database) (components []string, _ error) {
	statuses, err := Status(ctx, db)
	for _, c := range statuses {
		if c.FunctionsLater {
			components = append(components, c.Component)
		}
	}
	return components, err
}

// Check returns nil where this program can work with the database's schema, else a *SchemaError or
// *PlacementError that says what to do. It changes nothing.
func Check(ctx context.Context, db Database) error {
	look, err := db.look(ctx)
	if err != nil {
		return fmt.Errorf("look at schema of database %s: %w", db.Name, err)
	}
	if err := db.fits(look); err != nil {
		return err
	}
	for _, c := range db.components() {
		if current := look.versions[c.name()]; current < latest(c) {
			return &SchemaError{Database: db.Name, Component: c.name(), Current: current, Want: latest(c)}
		}
		if db.functionsOutdated(look, c) {
			return &SchemaError{Database: db.Name, Component: c.name(), Current: latest(c), Want: latest(c), Functions: true}
		}
		if missing, component := db.removed(look); missing != "" && component == c.name() {
			return &SchemaError{Database: db.Name, Component: component, Current: latest(c), Want: latest(c), Object: missing}
		}
	}
	return nil
}

// removed returns a table that the registry lists and that is gone.
func (db Database) removed(look inspection) (table, component string) {
	for _, c := range db.components() {
		for _, name := range c.creates() {
			id := identity(db.JobsSchema, name)
			if look.ownsRelation(id) && !slices.Contains(look.relations, name) {
				return id, c.name()
			}
		}
	}
	for _, f := range db.enabled() {
		if id := db.queueID(f); id != "" && look.versions[f.name] > 0 && !look.tracked[f.queue].there() {
			return id, f.name
		}
	}
	return "", ""
}

// look inspects over a connection of its own.
func (db Database) look(ctx context.Context) (look inspection, err error) {
	err = db.connected(ctx, func(conn *pgx.Conn) (err error) {
		look, err = db.inspect(ctx, conn)
		return err
	})
	return look, err
}

// connected does something on a connection of its own.
func (db Database) connected(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.ConnectConfig(ctx, db.Conn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(conn)
}
