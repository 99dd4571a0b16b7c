package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/migrate"
	"sexton/internal/pgschema"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// connections are the configured databases, open.
type connections struct {
	config    *config.Config
	databases []database.Database
	// down maps the name of each unreachable database to the reason. The jobs database is not among them.
	down map[string]error
}

// connect loads the configuration and opens every database in it.
func (a *app) connect(ctx context.Context) (*connections, error) {
	all, err := a.connectReachable(ctx)
	if err != nil {
		return nil, err
	}
	if err := all.complete(); err != nil {
		all.close()
		return nil, err
	}
	return all, nil
}

// connectReachable does without databases that cannot be reached, except the one with the jobs.
func (a *app) connectReachable(ctx context.Context) (*connections, error) {
	c, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	return open(ctx, c)
}

// open opens the databases. All but the one with the jobs may be down.
func open(ctx context.Context, c *config.Config) (*connections, error) {
	all := &connections{config: c, down: map[string]error{}}
	size := int32(poolSize(c))
	for _, settings := range c.Databases {
		names := pgschema.Names{Jobs: c.Jobs.Schema, Tracked: settings.Schema, Path: settings.TriggerPath()}
		db, err := database.Open(ctx, settings.Name, string(settings.URL), string(settings.ListenURL), names, size)
		if db.Pool != nil {
			all.databases = append(all.databases, db)
		}
		var unreachable *database.UnreachableError
		switch {
		case err == nil:
		case errors.As(err, &unreachable) && settings.Name != c.Jobs.Database:
			all.down[settings.Name] = located(c, err)
		default:
			all.close()
			return nil, located(c, err)
		}
	}
	return all, nil
}

// poolSize is how many connections a database's pool has at most. A worker has one in a pass, one for each other lane whose children
// live here, and one for each kind that is awake; the others are for leases, history and what looks at them.
func poolSize(c *config.Config) int {
	return c.Jobs.MaxWorkers + len(c.Databases) + 3 + len(riverjobs.Jobs(c))
}

// complete returns why the first of those databases that are down cannot be reached, in their order.
func (c *connections) complete() error {
	for _, db := range c.databases {
		if err := c.down[db.Name]; err != nil {
			return err
		}
	}
	return nil
}

// located adds where the connection string was written to an error about it.
func located(c *config.Config, err error) error {
	var settings *database.SettingsError
	var unreachable *database.UnreachableError
	switch {
	case errors.As(err, &settings):
		return problem.List{c.Problem("databases."+settings.Database+"."+settings.Key, "cannot be parsed", "look at its parameters")}
	case errors.As(err, &unreachable):
		// Without a message a problem renders as its place alone, ready for the text to follow.
		place := c.Problem("databases."+unreachable.Database+"."+unreachable.Key, "", "")
		return fmt.Errorf("%s%w", place, err)
	}
	return err
}

func (c *connections) close() {
	for _, db := range c.databases {
		db.Close()
	}
}

// async are the same for what a worker does every few seconds and may lose, on connections that it keeps.
func (c *connections) async() *connections {
	databases := slices.Clone(c.databases)
	for i := range databases {
		databases[i].Pool = databases[i].Async()
	}
	return &connections{config: c.config, databases: databases, down: c.down}
}

// jobs is the database with River's and Sexton's own tables. The configuration was checked for it.
func (c *connections) jobs() database.Database { return c.database(c.config.Jobs.Database) }

// database is the one of a configured name.
func (c *connections) database(name string) database.Database {
	for _, db := range c.databases {
		if db.Name == name {
			return db
		}
	}
	return c.databases[0]
}

// names are those of the databases, in the configured order.
func (c *connections) names() []string {
	names := make([]string, len(c.databases))
	for i, db := range c.databases {
		names[i] = db.Name
	}
	return names
}

// kinds are those of the enabled jobs.
func (c *connections) kinds() []string {
	var kinds []string
	for _, job := range riverjobs.Jobs(c.config) {
		kinds = append(kinds, job.Kind)
	}
	return kinds
}

// schemas describes what migrations have to find or make, per database. They connect directly, as a
// transaction pooler would lose the lock that keeps two of them apart.
func (c *connections) schemas() []migrate.Database {
	out := make([]migrate.Database, len(c.databases))
	for i, db := range c.databases {
		out[i] = migrate.Database{
			Name: db.Name, Conn: db.Direct, JobsSchema: db.Names.Jobs, TrackedSchema: db.Names.Tracked,
			Jobs: db.Name == c.config.Jobs.Database, Components: c.config.ComponentsIn(db.Name),
			Owner: c.config.Jobs.Owner,
			Kinds: riverjobs.Kinds(c.config),
		}
	}
	return out
}

// checkSchemas returns a *migrate.SchemaError where the schema does not fit this binary.
func (c *connections) checkSchemas(ctx context.Context) error {
	for _, schema := range c.schemas() {
		if c.down[schema.Name] != nil {
			continue
		}
		err := migrate.Check(ctx, schema)
		switch {
		case database.Lost(err) && !schema.Jobs:
			c.down[schema.Name] = located(c.config, c.database(schema.Name).Unreachable(err))
		case err != nil:
			return err
		}
	}
	return nil
}

// apart refuses one database under two names: each would take what the other one has installed there for surplus.
func (c *connections) apart(ctx context.Context) error {
	type place struct{ server, database, schema string }
	known := map[place]string{}
	var problems problem.List
	for _, db := range c.databases {
		if c.down[db.Name] != nil {
			continue
		}
		at := place{schema: db.Names.Tracked}
		found, err := serverOf(ctx, db)
		if err == nil {
			at.server = found.id
			err = db.Pool.QueryRow(ctx, "SELECT pg_catalog.current_database()").Scan(&at.database)
		}
		switch {
		case database.Lost(err) && db.Name != c.config.Jobs.Database:
			c.down[db.Name] = located(c.config, db.Unreachable(err))
			continue
		case err != nil:
			return fmt.Errorf("look where database %s is: %w", db.Name, err)
		}
		if other, taken := known[at]; taken {
			problems.Add(c.config.Problem("databases."+db.Name, "is the same database as "+other+", with the same schema",
				"name it once, with the tables of both"))
			continue
		}
		known[at] = db.Name
	}
	return problems.Err()
}

// loadDefinitions loads the definition files, if the component is enabled. As with definitions.Load, the
// sound ones come beside an error.
func loadDefinitions(c *config.Config) ([]definitions.Definition, error) {
	if !c.LooseForeignKeys.Enabled {
		return nil, nil
	}
	defs, err := definitions.Load(c.LooseForeignKeys.Definitions)
	problems, _ := errors.AsType[problem.List](err)
	names := make([]string, len(c.Databases))
	for i, db := range c.Databases {
		names[i] = db.Name
	}
	sound := make([]definitions.Definition, 0, len(defs))
	for _, d := range defs {
		if d.Database != "" && !slices.Contains(names, d.Database) {
			problems.Add(problem.Problem{
				Position: d.At("database"), Key: d.Key + ".database",
				Message: fmt.Sprintf("no database %q is configured", d.Database), Fix: "there is " + listed(names),
			})
			continue
		}
		sound = append(sound, d)
	}
	return sound, problems.Err()
}

// sites are the databases as definitions are held against them.
func (c *connections) sites() []loosefk.Site {
	sites := make([]loosefk.Site, len(c.databases))
	for i, db := range c.databases {
		settings, _ := c.config.Database(db.Name)
		sites[i] = loosefk.Site{Name: db.Name, Schema: db.Names.Tracked, Tables: settings.Tables}
		if c.down[db.Name] == nil {
			sites[i].DB = db.Pool
		}
	}
	return sites
}

// bound are definitions, bound to the databases they speak of.
type bound struct {
	*connections

	definitions []definitions.Definition
	// parents are by the name of their database.
	parents  map[string][]*loosefk.Parent
	warnings problem.List
	// held lists the findings that do not fit the databases, by kind: the worker works on all else.
	held map[string]problem.List
}

// bind loads the definitions, connects, and holds the one against the other. What is wrong with the files
// and what only the databases can tell is reported together.
func bind(ctx context.Context, c *config.Config) (*bound, error) {
	b, err := bindReachable(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := b.complete(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// bindReachable is bind without the databases that cannot be reached, except the one with the jobs.
func bindReachable(ctx context.Context, c *config.Config) (*bound, error) {
	b, err := bindFitting(ctx, c)
	if err != nil {
		return nil, err
	}
	var problems problem.List
	for _, found := range b.held {
		problems.Add(found...)
	}
	if err := problems.Err(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// bindFitting is bindReachable without what does not fit the databases. What is wrong with the files themselves is an error.
func bindFitting(ctx context.Context, c *config.Config) (_ *bound, err error) {
	defs, wrong := loadDefinitions(c)
	problems, _ := errors.AsType[problem.List](wrong)
	all, err := open(ctx, c)
	if err == nil {
		defer func() {
			if err != nil {
				all.close()
			}
		}()
		err = all.checkSchemas(ctx)
	}
	if err != nil {
		return nil, cmp.Or(wrong, err)
	}
	b := &bound{connections: all, definitions: defs, held: map[string]problem.List{}}
	if err := all.apart(ctx); err != nil {
		return nil, err
	}
	for {
		var found problem.List
		b.parents, found, err = loosefk.Resolve(ctx, all.sites(), defs)
		// One that was there a moment ago is as good as down, unless it is the one with the jobs.
		if failed, ok := errors.AsType[*loosefk.SiteError](err); ok && database.Lost(err) && failed.Database != c.Jobs.Database {
			all.down[failed.Database] = located(c, all.database(failed.Database).Unreachable(failed.Err))
			continue
		}
		if err != nil {
			return nil, err
		}
		b.hold(riverjobs.LooseForeignKeys, found)
		break
	}
	if c.GhostUsers.Enabled {
		_, found, err := riverjobs.CheckGhostUsers(ctx, c, all.jobs(), all.jobs().Pool)
		if err != nil {
			return nil, err
		}
		b.hold(riverjobs.GhostUsers, found)
	}
	if c.PlaceholderUsers.Enabled {
		_, found, err := riverjobs.CheckPlaceholderUsers(ctx, c, all.jobs(), all.jobs().Pool)
		if err != nil {
			return nil, err
		}
		b.hold(riverjobs.PlaceholderCleanup, found)
	}
	if wrong == nil {
		return b, nil
	}
	for _, found := range b.held {
		problems.Add(found...)
	}
	return nil, problems.Err()
}

// hold notes what does not fit, apart from warnings.
func (b *bound) hold(kind string, found problem.List) {
	b.warnings = append(b.warnings, found.Only(problem.Warning)...)
	if wrong := found.Only(problem.Error); len(wrong) > 0 {
		b.held[kind] = wrong
	}
}

// recordedParents are the parents of a database as its tombstones name them.
func (b *bound) recordedParents(_ context.Context, db database.Database) ([]string, error) {
	return riverjobs.Recorded(b.parents[db.Name]), nil
}
