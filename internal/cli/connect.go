package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// Connect loads the configuration and opens every database in it.
func (env *Env) Connect(ctx context.Context) (*installation.Connections, error) {
	all, err := env.ConnectReachable(ctx)
	if err != nil {
		return nil, err
	}
	if err := all.Complete(); err != nil {
		all.Close()
		return nil, err
	}
	return all, nil
}

// ConnectReachable does without databases that cannot be reached, except the one with the jobs.
func (env *Env) ConnectReachable(ctx context.Context) (*installation.Connections, error) {
	c, err := env.LoadConfig()
	if err != nil {
		return nil, err
	}
	return installation.Open(ctx, c, database.LockTimeout(lockWait))
}

// lockWait is how long the statements of a command wait for a lock of another session.
const lockWait = 10 * time.Second

// FindJob finds an enabled job.
func FindJob(c *config.Config, kind string) (riverjobs.Job, error) {
	jobs := riverjobs.Jobs(c)
	kinds := make([]string, len(jobs))
	for i, job := range jobs {
		if job.Kind == kind {
			return job, nil
		}
		kinds[i] = job.Kind
	}
	if len(kinds) == 0 {
		return riverjobs.Job{}, Usage(errors.New("no job is enabled; set loose_foreign_keys.enabled: true"))
	}
	return riverjobs.Job{}, Usage(fmt.Errorf("no job of kind %q is enabled; there is %s%s", kind, words.Listed(kinds), words.Meant(kind, kinds)))
}

// ChooseDatabase takes the database from --database, from --args, or the first one.
func ChooseDatabase(c *config.Config, name, rawArgs string) (string, error) {
	if rawArgs != "" {
		inArgs, err := DatabaseInArgs(rawArgs)
		if err != nil {
			return "", Usage(fmt.Errorf("--args %s: %w", rawArgs, err))
		}
		if name != "" && inArgs != "" && name != inArgs {
			return "", Usage(fmt.Errorf("--database %s and --args %s name different databases", name, rawArgs))
		}
		if inArgs != "" {
			name = inArgs
		}
	}
	if name == "" {
		return c.Databases[0].Name, nil
	}
	names := make([]string, len(c.Databases))
	for i, db := range c.Databases {
		names[i] = db.Name
	}
	if !slices.Contains(names, name) {
		return "", Usage(fmt.Errorf("no database %q is configured; there is %s%s", name, words.Listed(names), words.Meant(name, names)))
	}
	return name, nil
}

// DatabaseInArgs reads the arguments of a kind that serves several databases, which has this one.
func DatabaseInArgs(raw string) (string, error) {
	const form = `{"database": "NAME"}`
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(raw), &fields); err != nil || fields == nil {
		return "", fmt.Errorf("must be a JSON object of the form %s", form)
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if field != "database" {
			return "", fmt.Errorf("the job has no argument %q; it takes %s", field, form)
		}
	}
	value, given := fields["database"]
	if !given || bytes.Equal(value, []byte("null")) {
		return "", nil
	}
	var name string
	if err := json.Unmarshal(value, &name); err != nil {
		return "", fmt.Errorf("the argument database must be a text, as in %s", form)
	}
	return name, nil
}

// ConnectForJob connects and finds an enabled kind.
func (env *Env) ConnectForJob(ctx context.Context, kind string) (*installation.Connections, riverjobs.Job, error) {
	c, err := env.LoadConfig()
	if err != nil {
		return nil, riverjobs.Job{}, err
	}
	job, err := FindJob(c, kind)
	if err != nil {
		return nil, riverjobs.Job{}, err
	}
	all, err := installation.Open(ctx, c, database.LockTimeout(lockWait)) // The queues are in the jobs database.
	if err != nil {
		return nil, riverjobs.Job{}, err
	}
	if err := all.CheckSchemas(ctx); err != nil {
		all.Close()
		return nil, riverjobs.Job{}, err
	}
	return all, job, nil
}

// ConnectForFailures opens the databases that can be reached.
func (env *Env) ConnectForFailures(ctx context.Context) (*installation.Connections, error) {
	all, err := env.ConnectReachable(ctx)
	if err != nil {
		return nil, err
	}
	if err := all.CheckSchemas(ctx); err != nil {
		all.Close()
		return nil, err
	}
	return all, nil
}
