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
	// FunctionsDiffer says that Up would install the functions anew.
	FunctionsDiffer bool `json:"functions_differ,omitempty"`
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
		for _, m := range c.migrations() {
			if status.Enabled && m.Version > status.Current {
				status.Pending = append(status.Pending, m)
			}
		}
		statuses = append(statuses, status)
	}
	return statuses, nil
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
	if id := identity(db.TrackedSchema, tombstones); db.has(LooseForeignKeys) && look.owns("table", id) && !look.hasTombstones {
		return id, LooseForeignKeys
	}
	if id := identity(db.TrackedSchema, ghostQueue); db.has(GhostUsers) && look.versions[GhostUsers] > 0 && !look.ghostQueue.there() {
		return id, GhostUsers
	}
	if id := identity(db.TrackedSchema, groupSchedules); db.has(AdjournedGroups) && look.versions[AdjournedGroups] > 0 && !look.groupSchedules.there() {
		return id, AdjournedGroups
	}
	if id := identity(db.TrackedSchema, placeholders); db.has(PlaceholderUsers) && look.versions[PlaceholderUsers] > 0 && !look.placeholders.there() {
		return id, PlaceholderUsers
	}
	return "", ""
}

// look inspects over a connection of its own.
func (db Database) look(ctx context.Context) (inspection, error) {
	conn, err := pgx.ConnectConfig(ctx, db.Conn)
	if err != nil {
		return inspection{}, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var look inspection
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog, pg_temp"); err != nil {
			return err
		}
		look, err = db.inspect(ctx, tx)
		return err
	})
	return look, err
}
