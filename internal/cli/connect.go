package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/problem"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

// With connects to the databases, calls do, and disconnects. Only the jobs database must
// be reachable. With returns an error if the schema of a reachable database does not
// match this binary, or if kind is not empty and not enabled.
func (env *Env) With(ctx context.Context, kind string, do func(*installation.Connections) error) error {
	return env.open(ctx, kind, func(all *installation.Connections) error {
		if err := all.CheckSchemas(ctx); err != nil {
			return err
		}
		return do(all)
	})
}

// WithAll connects to the databases, calls do, and disconnects. It returns an error if a
// database cannot be reached. It does not check the schemas.
func (env *Env) WithAll(ctx context.Context, do func(*installation.Connections) error) error {
	return env.open(ctx, "", func(all *installation.Connections) error {
		if err := all.Complete(); err != nil {
			return err
		}
		return do(all)
	})
}

func (env *Env) open(ctx context.Context, kind string, do func(*installation.Connections) error) error {
	c, err := env.configFor(kind)
	if err != nil {
		return err
	}
	all, err := installation.Open(ctx, c, database.LockTimeout(lockWait))
	if err != nil {
		return err
	}
	defer all.Close()
	return do(all)
}

// Binder is a function of package installation that connects to the databases and
// resolves the definitions in them.
type Binder func(context.Context, *config.Config) (*installation.Bound, error)

// WithBound calls do with the connections and the definitions that bind returns, and
// disconnects. It returns an error if kind is not empty and not enabled.
func (env *Env) WithBound(ctx context.Context, kind string, bind Binder, do func(*installation.Bound) error) error {
	c, err := env.configFor(kind)
	if err != nil {
		return err
	}
	all, err := bind(ctx, c)
	if err != nil {
		return err
	}
	defer all.Close()
	return do(all)
}

// configFor reads the configuration. It returns an error if kind is not empty and not
// enabled.
func (env *Env) configFor(kind string) (*config.Config, error) {
	c, err := env.LoadConfig()
	if err == nil && kind != "" {
		_, err = FindJob(c, kind)
	}
	return c, err
}

// lockWait is the lock_timeout of the statements of all commands.
const lockWait = 10 * time.Second

// FindJob returns the enabled job of a kind, or a usage error.
func FindJob(c *config.Config, kind string) (riverjobs.Job, error) {
	jobs := riverjobs.Jobs(c)
	kinds := render.Each(jobs, func(job riverjobs.Job) string { return job.Kind })
	if i := slices.Index(kinds, kind); i >= 0 {
		return jobs[i], nil
	}
	if component := riverjobs.ComponentOf(c, kind); component != "" {
		return riverjobs.Job{}, Usage(fmt.Errorf("%s is not enabled; set %s.enabled: true", kind, component))
	}
	if len(kinds) == 0 {
		return riverjobs.Job{}, Usage(errors.New("no job is enabled; set loose_foreign_keys.enabled: true"))
	}
	return riverjobs.Job{}, Usage(fmt.Errorf("no job of kind %q is enabled (enabled: %s)%s", kind, render.Listed(kinds),
		problem.Suggestion(kind, kinds)))
}

// ChooseDatabase returns name if a database of that name is configured. If name is empty,
// it returns the name of the first database.
func ChooseDatabase(c *config.Config, name string) (string, error) {
	if name == "" {
		return c.Databases[0].Name, nil
	}
	names := c.DatabaseNames()
	if !slices.Contains(names, name) {
		return "", Usage(fmt.Errorf("no database %q is configured (configured: %s)%s", name, render.Listed(names),
			problem.Suggestion(name, names)))
	}
	return name, nil
}
