package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/cleanup"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
	"sexton/internal/undo"
	riverjobs "sexton/river_jobs"
)

// Connections holds the opened databases of a configuration.
type Connections struct {
	Config    *config.Config
	Databases []database.Database
	// Down maps the name of each unreachable database to the error. It never contains the
	// jobs database.
	Down map[string]error
}

// Open opens the databases. Only the jobs database must be reachable.
func Open(ctx context.Context, c *config.Config, options ...database.Option) (*Connections, error) {
	all := &Connections{Config: c, Down: map[string]error{}}
	size := int32(PoolSize(c))
	for _, settings := range c.Databases {
		db, err := database.Open(ctx, settings.Name, string(settings.URL), string(settings.ListenURL),
			NamesOf(c, settings), size, options...)
		if db.Pool != nil {
			all.Databases = append(all.Databases, db)
		}
		var unreachable *database.UnreachableError
		switch {
		case err == nil:
		case errors.As(err, &unreachable) && settings.Name != c.Jobs.Database:
			all.Down[settings.Name] = Located(c, err)
		default:
			all.Close()
			return nil, Located(c, err)
		}
	}
	return all, nil
}

// NamesOf returns the names of schemas that statements use in a database.
func NamesOf(c *config.Config, settings config.Database) pgcatalog.Names {
	return pgcatalog.Names{
		Tracked: settings.Schema, Path: settings.TriggerPath(),
		GroupViews: c.AdjournedGroups.Groups.Table != "",
	}
}

// PoolSize returns the maximum size of the pool of a database. A worker needs one
// connection per worker slot, the additional sessions of a run, one per database for
// listeners, and one per awake kind. Three more connections are for leases, history and
// status.
func PoolSize(c *config.Config) int {
	further := c.LooseForeignKeys.Connections - 1
	if c.Has(migrate.GhostUsers) {
		further += c.GhostUsers.Connections - 1
	}
	return max(c.Jobs.MaxWorkers, diffConnections(c)) + further + len(c.Databases) + len(riverjobs.Jobs(c)) + 3
}

// diffConnections returns the connections for diffs: each upload needs one for its
// snapshot and one to renew its claim.
func diffConnections(c *config.Config) int {
	if !c.Has(migrate.ExternalDiffs) {
		return 0
	}
	return 2 * c.ExternalDiffs.MaxWorkers
}

// Complete returns the error of the first unreachable database, or nil.
func (c *Connections) Complete() error {
	for _, db := range c.Databases {
		if err := c.Down[db.Name]; err != nil {
			return err
		}
	}
	return nil
}

// Located adds the position of the connection string in the configuration to an error
// about the connection.
func Located(c *config.Config, err error) error {
	if settings, ok := errors.AsType[*database.SettingsError](err); ok {
		return problem.List{c.Problem("databases."+settings.Database+"."+settings.Key, "cannot be parsed",
			"correct its parameters")}
	}
	if unreachable, ok := errors.AsType[*database.UnreachableError](err); ok {
		// A problem without a message renders as its position, followed by the text of
		// the error.
		prefix := c.Problem("databases."+unreachable.Database+"."+unreachable.Key, "", "")
		return fmt.Errorf("%s%w", prefix, err)
	}
	return err
}

// Close closes all connections.
func (c *Connections) Close() {
	for _, db := range c.Databases {
		db.Close()
	}
}

// Jobs returns the jobs database, which has the tables of River and Sexton. A valid
// configuration has one.
func (c *Connections) Jobs() database.Database { return c.Database(c.Config.Jobs.Database) }

// Database returns the database with a configured name. Its Pool is nil if the database
// was not opened.
func (c *Connections) Database(name string) database.Database {
	i := slices.IndexFunc(c.Databases, func(db database.Database) bool { return db.Name == name })
	if i < 0 {
		return database.Database{}
	}
	return c.Databases[i]
}

// Kinds returns the kinds of the enabled jobs.
func (c *Connections) Kinds() []string {
	return render.Each(riverjobs.Jobs(c.Config), func(job riverjobs.Job) string { return job.Kind })
}

// Schemas returns the settings for package migrate, one per database.
func (c *Connections) Schemas() []migrate.Database {
	return render.Each(c.Databases, c.schema)
}

// schema returns the settings of one database for package migrate. Migrations use a
// direct connection, because a transaction pooler would lose their advisory lock.
func (c *Connections) schema(db database.Database) migrate.Database {
	return migrate.Database{
		Name: db.Name, Conn: db.Direct, Sessions: db.Sessions, TrackedSchema: db.Names.Tracked,
		Jobs: db.Name == c.Config.Jobs.Database, Components: c.Config.ComponentsIn(db.Name),
		Owner: c.Config.Jobs.Owner,
		Kinds: riverjobs.Kinds(c.Config), Users: riverjobs.TableOfUsers(c.Config),
		Groups: riverjobs.TableOfGroups(c.Config),
	}
}

// CheckSchemas returns a *migrate.SchemaError if a schema does not match this binary.
func (c *Connections) CheckSchemas(ctx context.Context) error {
	for _, schema := range c.Schemas() {
		if c.Down[schema.Name] != nil {
			continue
		}
		err := migrate.Check(ctx, schema)
		switch {
		case database.Lost(err) && !schema.Jobs:
			c.Down[schema.Name] = Located(c.Config, c.Database(schema.Name).Unreachable(err))
		case err != nil:
			return err
		}
	}
	return nil
}

// refuseDuplicates returns an error if one database is configured under two names. Each
// name would report the triggers of the other name as surplus.
func (c *Connections) refuseDuplicates(ctx context.Context) error {
	type address struct{ server, database, schema string }
	known := map[address]string{}
	var problems problem.List
	for _, db := range c.Databases {
		if c.Down[db.Name] != nil {
			continue
		}
		place := address{schema: db.Names.Tracked}
		// Port and start time identify the server: two servers on one machine have
		// different ports, and two servers on different machines do not start in the same
		// microsecond.
		err := db.Pool.QueryRow(ctx, "SELECT pg_catalog.current_database(), "+
			"pg_catalog.format('%s %s', extract(epoch FROM pg_catalog.pg_postmaster_start_time()), pg_catalog.current_setting('port'))").
			Scan(&place.database, &place.server)
		switch {
		case database.Lost(err) && db.Name != c.Config.Jobs.Database:
			c.Down[db.Name] = Located(c.Config, db.Unreachable(err))
			continue
		case err != nil:
			return fmt.Errorf("identify database %s: %w", db.Name, err)
		}
		if other, taken := known[place]; taken {
			problems.Add(c.Config.Problem("databases."+db.Name,
				"is the same database as "+other+", with the same schema",
				"configure it once, with the tables of both names"))
			continue
		}
		known[place] = db.Name
	}
	return problems.Err()
}

// LoadDefinitions loads the definition files if the component is enabled. Like
// definitions.Load, it returns the valid definitions together with an error.
func LoadDefinitions(c *config.Config) ([]definitions.Definition, error) {
	if !c.Has(migrate.LooseForeignKeys) {
		return nil, nil
	}
	defs, err := definitions.Load(c.LooseForeignKeys.Definitions)
	problems, _ := errors.AsType[problem.List](err)
	names := c.DatabaseNames()
	sound := make([]definitions.Definition, 0, len(defs))
	for _, d := range defs {
		if d.Database != "" && !slices.Contains(names, d.Database) {
			problems.Add(problem.Problem{
				Position: d.At("database"), Key: d.Key + ".database",
				Message: fmt.Sprintf("no database %q is configured", d.Database),
				Fix:     "configured: " + render.Listed(names),
			})
			continue
		}
		sound = append(sound, d)
	}
	if err == nil {
		problems.Add(unknownParents(c, defs)...)
	}
	return sound, problems.Err()
}

// unknownParents returns a problem for each entry of undo.tables that is not a parent of
// any definition, because undo would save no rows for it.
func unknownParents(c *config.Config, defs []definitions.Definition) (found problem.List) {
	known := render.Each(defs, func(d definitions.Definition) string { return d.Parent.Table })
	for i, name := range c.LooseForeignKeys.Undo.Tables {
		if table := name[strings.LastIndexByte(name, '.')+1:]; !slices.Contains(known, table) {
			found.Add(c.Problem(fmt.Sprintf("loose_foreign_keys.undo.tables[%d]", i),
				fmt.Sprintf("no definition has the parent %q", name),
				"name parents of the definitions"+problem.Suggestion(table, known)))
		}
	}
	return found
}

// Sites returns the configured databases for loosefk.Resolve. Unreachable databases have
// no connection.
func (c *Connections) Sites() []loosefk.Site {
	sites := make([]loosefk.Site, len(c.Config.Databases))
	for i, settings := range c.Config.Databases {
		sites[i] = loosefk.Site{Name: settings.Name, Schema: settings.Schema, Tables: settings.Tables}
		if db := c.Database(settings.Name); db.Pool != nil && c.Down[db.Name] == nil {
			sites[i].DB = db.Pool
		}
	}
	return sites
}

// Bound holds the definitions that were resolved in the databases.
type Bound struct {
	*Connections

	Definitions []definitions.Definition
	// Parents maps each database to its parents.
	Parents  map[string][]*loosefk.Parent
	Warnings problem.List
	// held maps a kind in one or all databases to the errors of its configuration that
	// does not fit the databases. A worker omits the affected work.
	held map[place]problem.List
}

// Undo returns the engine that lists and restores saved deletions.
func (b *Bound) Undo(holder string, databases []database.Database) *undo.Engine {
	settings := b.Config.LooseForeignKeys.Undo
	return &undo.Engine{
		Databases: databases, Parents: b.Parents, Keep: settings.Keep, FireTriggers: settings.FireTriggers,
		Leases: b.Leases(holder), Key: riverjobs.LooseForeignKeysLease, StatementTimeout: 30 * time.Second,
		LockTimeout: 10 * time.Second,
	}
}

// Bind loads the definitions, connects, and resolves the definitions in the databases. It
// reports errors of the files and of the databases together.
func Bind(ctx context.Context, c *config.Config) (*Bound, error) {
	return complete(BindReachable(ctx, c))
}

// complete returns an error if a database is unreachable.
func complete(b *Bound, err error) (*Bound, error) {
	if err == nil {
		if err = b.Complete(); err != nil {
			b.Close()
		}
	}
	return b, err
}

// BindReachable is like [Bind], but omits unreachable databases. The jobs database must
// be reachable.
func BindReachable(ctx context.Context, c *config.Config) (*Bound, error) {
	return ReadFiles(c).BindReachable(ctx, c)
}

// BindUsable is like [BindReachable], but omits definitions that do not fit the
// databases.
func BindUsable(ctx context.Context, c *config.Config) (*Bound, error) {
	return ReadFiles(c).bindFitting(ctx, c)
}

// Files holds the content of the definition files. A worker starts with the content that
// it has validated, because the files may change.
type Files struct {
	definitions []definitions.Definition
	wrong       error
}

// ReadFiles reads the definition files.
func ReadFiles(c *config.Config) (f Files) {
	f.definitions, f.wrong = LoadDefinitions(c)
	return f
}

// BindReachable resolves these definitions like the function [BindReachable].
func (f Files) BindReachable(ctx context.Context, c *config.Config) (*Bound, error) {
	b, err := f.bindFitting(ctx, c)
	if err != nil {
		return nil, err
	}
	var problems problem.List
	for _, found := range b.held {
		problems.Add(found...)
	}
	if err := problems.Err(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// bindFitting is like [Files.BindReachable], but omits definitions that do not fit the
// databases. It returns errors of the files themselves.
func (f Files) bindFitting(ctx context.Context, c *config.Config) (_ *Bound, err error) {
	problems, _ := errors.AsType[problem.List](f.wrong)
	all, err := Open(ctx, c)
	if err == nil {
		defer func() {
			if err != nil {
				all.Close()
			}
		}()
		err = all.CheckSchemas(ctx)
	}
	if err != nil {
		return nil, cmp.Or(f.wrong, err)
	}
	b := &Bound{Connections: all, Definitions: f.definitions, held: map[place]problem.List{}}
	if err := all.refuseDuplicates(ctx); err != nil {
		return nil, err
	}
	for {
		var found problem.List
		b.Parents, found, err = loosefk.Resolve(ctx, all.Sites(), f.definitions)
		// If the connection to a database is lost here, the database counts as down,
		// unless it is the jobs database.
		if failed, ok := errors.AsType[*loosefk.SiteError](err); ok && database.Lost(err) &&
			failed.Database != c.Jobs.Database {
			all.Down[failed.Database] = Located(c, all.Database(failed.Database).Unreachable(failed.Err))
			continue
		}
		if err != nil {
			return nil, err
		}
		b.hold(place{kind: riverjobs.LooseForeignKeys}, found)
		break
	}
	for _, job := range riverjobs.Jobs(c) {
		for _, name := range job.Databases {
			found, err := all.checkJob(ctx, job, name)
			if err != nil {
				return nil, err
			}
			b.hold(place{job.Kind, name}, found)
		}
	}
	if f.wrong == nil {
		return b, nil
	}
	for _, found := range b.held {
		problems.Add(found...)
	}
	return nil, problems.Err()
}

// place identifies a kind in one database, or in all databases if database is empty.
type place struct{ kind, database string }

// hold appends the warnings in found to Warnings, and stores the errors for a kind and
// database.
func (b *Bound) hold(at place, found problem.List) {
	b.Warnings = append(b.Warnings, found.Only(problem.Warning)...)
	if wrong := found.Only(problem.Error); len(wrong) > 0 {
		b.held[at] = wrong
	}
}

// RecordedParents returns the names of a database's parents as tombstones record them.
func (b *Bound) RecordedParents(_ context.Context, db database.Database) ([]string, error) {
	return cleanup.RecordedNames(b.Parents[db.Name]), nil
}

// Remotes returns the reachable databases other than the given one.
func (c *Connections) Remotes(than database.Database) map[string]pgcatalog.Beginner {
	remotes := map[string]pgcatalog.Beginner{}
	for _, db := range c.Databases {
		if db.Name != than.Name && c.Down[db.Name] == nil {
			remotes[db.Name] = db.Pool
		}
	}
	return remotes
}

// DefaultSchema returns the schema of table names without a schema.
func (b *Bound) DefaultSchema(name string) string {
	settings, _ := b.Config.Database(name)
	return settings.Schema
}

// DownNames returns the unreachable databases in the order of the configuration.
func (c *Connections) DownNames() []string {
	var names []string
	for _, db := range c.Databases {
		if c.Down[db.Name] != nil {
			names = append(names, db.Name)
		}
	}
	return names
}
