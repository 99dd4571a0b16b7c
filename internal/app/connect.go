package app

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/migrate"
	"sexton/internal/pgschema"
	"sexton/internal/problem"
)

// connections are the configured databases, connected.
type connections struct {
	config    *config.Config
	databases []database.Database
}

// connect loads the configuration and opens every database in it.
func (a *app) connect(ctx context.Context) (*connections, error) {
	c, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	if len(c.Databases) > 1 {
		return nil, problem.List{c.Problem("databases."+c.Databases[1].Name, "several databases are not available in this version", "configure one")}
	}
	all := &connections{config: c}
	for _, settings := range c.Databases {
		names := pgschema.Names{Jobs: c.Jobs.Schema, Tracked: settings.Schema}
		db, err := database.Open(ctx, settings.Name, string(settings.URL), string(settings.ListenURL), names, int32(c.Jobs.MaxWorkers)+4) //nolint:gosec // bounded by the configuration
		if err != nil {
			all.close()
			return nil, err
		}
		all.databases = append(all.databases, db)
	}
	return all, nil
}

func (c *connections) close() {
	for _, db := range c.databases {
		db.Pool.Close()
	}
}

// jobs is the database with River's and Sexton's own tables. The configuration was checked for it.
func (c *connections) jobs() database.Database {
	for _, db := range c.databases {
		if db.Name == c.config.Jobs.Database {
			return db
		}
	}
	return c.databases[0]
}

// schemas describes what migrations have to find or make, per database. They connect directly, as a
// transaction pooler would lose the lock that keeps two of them apart.
func (c *connections) schemas() []migrate.Database {
	out := make([]migrate.Database, len(c.databases))
	for i, db := range c.databases {
		out[i] = migrate.Database{
			Name: db.Name, Conn: db.Direct, JobsSchema: db.Names.Jobs, TrackedSchema: db.Names.Tracked,
			Jobs: db.Name == c.config.Jobs.Database, LooseForeignKeys: c.config.LooseForeignKeys.Enabled,
		}
	}
	return out
}

// checkSchemas returns a *migrate.SchemaError where the schema does not fit this binary.
func (c *connections) checkSchemas(ctx context.Context) error {
	for _, schema := range c.schemas() {
		if err := migrate.Check(ctx, schema); err != nil {
			return err
		}
	}
	return nil
}

// loadDefinitions loads the definition files, if the component is enabled.
func loadDefinitions(c *config.Config) ([]definitions.Definition, error) {
	if !c.LooseForeignKeys.Enabled {
		return nil, nil
	}
	return definitions.Load(c.LooseForeignKeys.Definitions)
}

// parents binds the definitions to the database and logs what is only worth a warning.
func (a *app) parents(ctx context.Context, c *config.Config, pool *pgxpool.Pool, names pgschema.Names) ([]*loosefk.Parent, error) {
	defs, err := loadDefinitions(c)
	if err != nil {
		return nil, err
	}
	parents, problems, err := loosefk.Resolve(ctx, pool, names.Tracked, defs)
	if err != nil {
		return nil, err
	}
	for _, p := range problems.Only(problem.Warning) {
		_, _ = fmt.Fprintln(a.stderr, "warning:", p)
	}
	return parents, problems.Err()
}
