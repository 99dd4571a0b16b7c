package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/devpg"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// onCluster calls do with the server of --database-url. Without that flag, it starts a
// private server with the given settings, and stops it at the end.
func onCluster(ctx context.Context, env *cli.Env, settings map[string]string,
	do func(*Cluster) (*Report, error),
) (_ *Report, err error) {
	url := env.DatabaseURL
	if url == "" {
		server, err := devpg.Start(ctx, devpg.Options{BinDir: env.Getenv("SEXTON_PG_BIN"), Settings: settings})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		url = server.URL("postgres")
	}
	dir, err := os.MkdirTemp("", "sexton-bench-")
	if err != nil {
		return nil, fmt.Errorf("create folder for the benchmark: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	g := &Cluster{Env: env, AdminURL: url, dir: dir}
	c, err := g.config(url, Definitions)
	if err != nil {
		return nil, err
	}
	admin, err := installation.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	g.Admin = admin.Jobs().Pool
	if g.Server, err = ReadServer(ctx, g.Admin); err != nil {
		return nil, err
	}
	return do(g)
}

// config writes the configuration files and returns a configuration for one database.
func (g *Cluster) config(url, definitions string, environ ...string) (*config.Config, error) {
	path := filepath.Join(g.dir, config.DefaultFile)
	for name, content := range map[string]string{
		path:                                    "loose_foreign_keys: {definitions: [definitions.yml]}\nlog: {level: warn}\n",
		filepath.Join(g.dir, "definitions.yml"): definitions,
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("write configuration of the benchmark: %w", err)
		}
	}
	return config.Load(config.Options{Path: path, Environ: append(environ, "SEXTON_DATABASES__MAIN__URL="+url)})
}

func (g *Cluster) install(ctx context.Context, url, definitions string,
	environ ...string,
) (*installation.Bound, error) {
	c, err := g.config(url, definitions, environ...)
	if err != nil {
		return nil, err
	}
	all, err := installation.Install(ctx, c, g.Logger(c))
	return all, problem.Doing(err, "install")
}

// open returns a worker that is connected to a database with a data set.
func (g *Cluster) open(ctx context.Context, url string, s dataSet, o WorkerOptions) (*Worker, error) {
	environ := append(connections(o.Connections), "SEXTON_DATABASES__MAIN__LIMITS__RUNTIME="+o.Runtime.String())
	c, err := g.config(url, s.definitions(), append(environ, s.environ()...)...)
	if err != nil {
		return nil, err
	}
	kind := riverjobs.LooseForeignKeys
	if s.Name == Retention {
		kind = riverjobs.RetentionCleanup
	}
	job, err := cli.FindJob(c, kind)
	if err != nil {
		return nil, err
	}
	all, err := installation.Bind(ctx, c)
	if err != nil {
		return nil, err
	}
	log := g.Logger(c)
	deps := riverjobs.Deps{
		Bindings: &riverjobs.Bindings{}, Config: c, Databases: all.Databases, Definitions: all.Definitions, Logger: log,
		Runner: &jobrun.Runner{Leases: all.Leases(installation.Holder()), Logger: log},
	}
	return &Worker{
		Pass: func(ctx context.Context) (Pass, error) {
			report, err := job.Run(ctx, deps, riverjobs.Pass{Database: all.Databases[0].Name})
			if err == nil {
				// Return the context's error, because a run whose context was canceled
				// returns no error.
				err = ctx.Err()
			}
			if err != nil {
				return Pass{}, err
			}
			return passOf(report)
		},
		Close: all.Close,
	}, nil
}

// connections returns the environment variable that sets the number of sessions of a run.
// It returns nothing for 0, so that the default applies.
func connections(n int) []string {
	if n == 0 {
		return nil
	}
	return []string{"SEXTON_LOOSE_FOREIGN_KEYS__CONNECTIONS=" + strconv.Itoa(n)}
}

// passOf returns the result in the report of a run.
func passOf(report jobrun.Report) (Pass, error) {
	if report.Outcome == jobrun.Skipped {
		return Pass{Trouble: "skipped: " + report.Reason}, nil
	}
	var stats struct {
		loosefk.Stats

		// Deleted is a statistic that only retention_cleanup reports: the number of
		// deleted rows by table.
		Deleted map[string]int64 `json:"deleted"`
	}
	if err := json.Unmarshal(report.Stats, &stats); err != nil {
		return Pass{}, fmt.Errorf("decode statistics: %w", err)
	}
	pass := Pass{
		// More is also true after errors, because the next run retries the failed rows.
		More: report.Outcome == jobrun.OverLimit || len(stats.Errors) > 0,
		Rows: stats.DeleteCount + stats.UpdateCount, Finished: stats.Processed,
	}
	for _, rows := range stats.Deleted {
		pass.Rows += rows
	}
	if stats.Rescheduled > 0 {
		pass.Trouble = fmt.Sprintf("%d tombstones were deferred", stats.Rescheduled)
		if len(stats.Errors) > 0 {
			pass.Trouble += ": " + stats.Errors[0].Message
		}
	}
	return pass, nil
}
