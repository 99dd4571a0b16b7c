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

// With opens the databases, calls do, and closes them. Only the jobs database must be
// reachable. The schemas of the reachable databases must match this binary. If kind is
// not empty, a job of that kind must be enabled.
func (env *Env) With(ctx context.Context, kind string, do func(*installation.Connections) error) error {
	return env.open(ctx, kind, func(all *installation.Connections) error {
		if err := all.CheckSchemas(ctx); err != nil {
			return err
		}
		return do(all)
	})
}

// WithAll opens the databases like With, but returns an error if one cannot be reached,
// and accepts any version of the schema.
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

// Binder is a function of package installation that resolves definitions in databases.
type Binder func(context.Context, *config.Config) (*installation.Bound, error)

// WithBound is With for commands that need the definitions, resolved in the databases.
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

// configFor reads the configuration. If kind is not empty, a job of that kind must be
// enabled.
func (env *Env) configFor(kind string) (*config.Config, error) {
	c, err := env.LoadConfig()
	if err == nil && kind != "" {
		_, err = FindJob(c, kind)
	}
	return c, err
}

// lockWait is the lock timeout of the statements of a command.
const lockWait = 10 * time.Second

// FindJob returns an enabled job.
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

// ChooseDatabase checks the name of a database. An empty name stands for the first
// database.
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
