package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/each"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	sqlfiles "sexton/sql"
)

// preflight returns why Up cannot go through, so that it fails before it begins.
func (db Database) preflight(look inspection) error {
	if err := db.fits(look); err != nil {
		return err
	}
	if err := db.conflicts(look); err != nil {
		return err
	}
	if err := db.requirements(look); err != nil {
		return err
	}
	return db.privileges(look)
}

// fits refuses a server that is too old, a schema newer than this program, and deletion tables in another place than configured.
func (db Database) fits(look inspection) error {
	if found := pgcatalog.Untested(look.server); found.Severity == problem.Error {
		return fmt.Errorf("database %s: %s", db.Name, found)
	}
	for _, c := range allComponents() {
		if current := look.versions[c.name]; current > latest(c) {
			return db.unfit(c.name, "run a newer sexton", "component %s is at version %d, this binary knows version %d; "+
				"this binary is older than the schema, use a newer one", c.name, current, latest(c))
		}
	}
	for o := range look.objects {
		// Of a table of the application's the registry knows Sexton's columns.
		installed := o.identity
		if o.kind == "column" {
			installed = installed[:max(0, strings.LastIndex(installed, "."))]
		}
		for _, c := range db.components() {
			want := db.queueID(c)
			if want != "" && (o.kind == "table" || o.kind == "column") && strings.HasSuffix(installed, "."+c.queue) && installed != want {
				const fix = "set the schema back, or run `sexton migrate down` with the old configuration first"
				return &SchemaError{Object: installed, Fix: fix, text: fmt.Sprintf(
					"database %s has its %s in %s, but the configuration puts them into %s; "+fix, db.Name, c.holds, installed, want)}
			}
		}
	}
	return nil
}

// fitsQueue reports why a deletion table that the application has brought along cannot be used.
func (db Database) fitsQueue(c component, table relation) error {
	if !table.there() {
		return nil
	}
	if table.kind != "r" {
		return db.conflict("it is no ordinary table; rename it", db.queueID(c))
	}
	if lacking := table.lacks(c.columns); len(lacking) > 0 {
		return db.conflict("it lacks the columns "+strings.Join(lacking, ", ")+"; add them, or rename the table to have it created", db.queueID(c))
	}
	return nil
}

// conflict says that names which Sexton needs are taken by objects that it did not create, and the way out.
func (db Database) conflict(fix string, objects ...string) error {
	return fmt.Errorf("database %s holds %s, not created by Sexton; nothing was changed: %s", db.Name, strings.Join(objects, ", "), fix)
}

// conflicts refuses to build on objects of others, whatever they look like.
func (db Database) conflicts(look inspection) error {
	var taken []string
	if slices.Contains(look.relations, "objects") && !look.registry {
		taken = append(taken, identity(db.JobsSchema, "objects"))
	}
	for _, c := range db.components() {
		// The registry knows River as a whole.
		if c.name == River && look.installed(db, c) {
			continue
		}
		for _, name := range c.relations() {
			if id := identity(db.JobsSchema, name); slices.Contains(look.relations, name) && !look.ownsRelation(id) {
				taken = append(taken, id)
			}
		}
	}
	if len(taken) > 0 {
		return db.conflict("choose another jobs.schema, or rename them", taken...)
	}
	for _, c := range db.components() {
		if id := db.queueID(c); look.tracked[c.queue].there() && len(c.columns) == 0 && !look.owns("table", id) {
			return db.conflict(
				"rename that table (Sexton does not take over the queue of another installation), or point the database's schema elsewhere", id)
		}
	}
	return nil
}

// privileges names everything that the role lacks. A component that is up to date needs nothing.
func (db Database) privileges(look inspection) error {
	var problems []error
	lacks := func(missing, grant string) {
		problems = append(problems, &PrivilegeError{Database: db.Name, Role: look.role, Missing: missing, Grant: grant})
	}
	role, schema, tracked := quote(look.role), quote(db.JobsSchema), quote(db.TrackedSchema)
	pending := !look.registry || slices.ContainsFunc(db.components(), func(c component) bool {
		return look.versions[c.name] < latest(c) || db.functionsDiffer(look, c)
	})
	switch {
	case !pending:
		return nil
	case !look.hasSchema && !look.mayCreateSchema:
		lacks("may not create schema "+schema, fmt.Sprintf("GRANT CREATE ON DATABASE %s TO %s", quote(look.database), role))
	case look.hasSchema && !look.mayCreateInSchema:
		lacks("may not create tables in schema "+schema, fmt.Sprintf("GRANT USAGE, CREATE ON SCHEMA %s TO %s", schema, role))
	}
	creates := slices.ContainsFunc(db.components(), func(c component) bool {
		return c.queue != "" && look.versions[c.name] == 0 && !look.tracked[c.queue].there()
	})
	if creates {
		switch {
		case !look.hasTracked:
			problems = append(problems, fmt.Errorf("schema %s of the tracked tables does not exist; correct databases.%s.schema", tracked, db.Name))
		case !look.mayCreateInTracked:
			lacks("may not create tables in schema "+tracked, fmt.Sprintf("GRANT USAGE, CREATE ON SCHEMA %s TO %s", tracked, role))
		}
	}
	return errors.Join(problems...)
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// createRegistry creates Sexton's schema where it is missing, and the registry in it.
func (s *session) createRegistry(ctx context.Context, look inspection) error {
	if look.registry {
		return nil
	}
	registry, err := sqlfiles.Migrations.ReadFile("migrations/registry.sql")
	if err != nil {
		return fmt.Errorf("read migration: %w", err)
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if !look.hasSchema {
			if _, err := tx.Exec(ctx, "CREATE SCHEMA "+quote(s.db.JobsSchema)); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, s.replacer.Replace(string(registry))); err != nil {
			return err
		}
		if look.hasSchema {
			return nil
		}
		_, err := tx.Exec(ctx, s.db.register(), "schema", s.db.JobsSchema, "registry")
		return err
	})
	return problem.Doing(err, "create list of objects")
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
	enabled := each.Of(db.components(), func(c component) string { return c.name })
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

// Check returns nil where this program can work with the database's schema, else a *SchemaError that says what to do. It changes nothing.
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
		name, missing := c.name, db.removed(look, c)
		switch current := look.versions[name]; {
		case current == 0:
			return db.unfit(name, up, "component %s is not installed; run `%s`", name, up)
		case current < latest(c):
			return db.unfit(name, up, "component %s is at version %d, this binary needs version %d; run `%s`", name, current, latest(c), up)
		case db.functionsOutdated(look, c):
			return db.unfit(name, up, "functions of component %s come from another release than this binary; run `%s` of the newer one", name, up)
		case missing != "":
			const fix = "restore %s, or run `sexton migrate down --force` and `sexton migrate up`"
			return db.unfit(name, fmt.Sprintf(fix, "the table"), "table %s of component %s has been removed; "+fix, missing, name, "it")
		}
	}
	return nil
}

// removed returns a table of the component that the registry lists and that is gone.
func (db Database) removed(look inspection, c component) string {
	for _, name := range c.relations() {
		id := identity(db.JobsSchema, name)
		if look.ownsRelation(id) && !slices.Contains(look.relations, name) {
			return id
		}
	}
	if !look.tracked[c.queue].there() {
		return db.queueID(c)
	}
	return ""
}

func (db Database) look(ctx context.Context) (look inspection, err error) {
	err = db.reading(ctx, func(on beginner) (err error) {
		look, err = db.inspect(ctx, on)
		return err
	})
	return look, err
}

// beginner is a pool or a connection.
type beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// reading does something on one of the sessions, else on a connection of its own.
func (db Database) reading(ctx context.Context, do func(on beginner) error) error {
	if db.Sessions != nil {
		return do(db.Sessions)
	}
	conn, err := pgx.ConnectConfig(ctx, db.Conn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(conn)
}
