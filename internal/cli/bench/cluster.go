package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"sexton/internal/bench"
	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/devpg"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// allSets stands for every data set.
const allSets = "all"

// setFlag adds --set.
func setFlag(cmd *cobra.Command, set *string, all []string) {
	cmd.Flags().StringVar(set, "set", allSets, "data set `NAME`: "+strings.Join(all, ", ")+" or "+allSets)
	_ = cmd.RegisterFlagCompletionFunc("set", cobra.FixedCompletions(append(slices.Clone(all), allSets), cobra.ShellCompDirectiveNoFileComp))
}

// chosenSets are the data sets that --set stands for. The duty, of --duty, is looked at as well.
func chosenSets(set string, all []string, duty string) ([]string, error) {
	var known config.Duty
	switch err := known.UnmarshalText([]byte(duty)); {
	case err != nil:
		return nil, fmt.Errorf("--duty %w", err)
	case set == allSets:
		return all, nil
	case !slices.Contains(all, set):
		return nil, fmt.Errorf("--set must be one of %s, %s", strings.Join(all, ", "), allSets)
	}
	return []string{set}, nil
}

// clusterBenchmark is benchmark for benchmarks that make databases themselves. Job looks at the flags and says whose passes are
// measured.
func clusterBenchmark(env *cli.Env,
	example, short, long string, job func() (measuredJob, error), measure func(context.Context, *bench.Cluster) (*bench.Report, error),
) *cobra.Command {
	return measuring(env, example, short, long, func(ctx context.Context) (*bench.Report, error) {
		measured, err := job()
		if err != nil {
			return nil, cli.Usage(err)
		}
		return onCluster(ctx, env, bench.ServerSettings(), measured, func(cluster *bench.Cluster, _ installer) (*bench.Report, error) {
			return measure(ctx, cluster)
		})
	})
}

// loadFlags are those of benchmarks that may have a foreground load: what clients use meanwhile, and whose duty it is.
func loadFlags(cmd *cobra.Command, o *bench.Options, uses, duty string) {
	cmd.Flags().BoolVar(&o.Foreground, "foreground", false, "also measure clients that use "+uses+" meanwhile")
	cmd.Flags().StringVar(&o.Duty, "duty", "auto", duty+" beside them works `PERCENT` of its time, and all of it elsewhere; or auto")
	sizeFlags(cmd, &o.Scale, &o.Rounds, "size")
}

func sizeFlags(cmd *cobra.Command, scale *float64, rounds *int, of string) {
	cmd.Flags().Float64Var(scale, "scale", 1, "`FRACTION` of the full "+of)
	cmd.Flags().IntVar(rounds, "rounds", 3, "how often to measure each, `N`; the median counts")
}

// onCluster hands over the given server, or a private one with the settings, and with it what installs Sexton there.
func onCluster(
	ctx context.Context, env *cli.Env, settings map[string]string, job measuredJob, do func(*bench.Cluster, installer) (*bench.Report, error),
) (_ *bench.Report, err error) {
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
	g := installer{Env: env, dir: dir, job: job}
	c, err := g.config(url, bench.Definitions, "100")
	if err != nil {
		return nil, err
	}
	admin, err := installation.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	server, err := bench.ReadServer(ctx, admin.Jobs().Pool)
	if err != nil {
		return nil, err
	}
	return do(&bench.Cluster{
		Admin: admin.Jobs().Pool, AdminURL: url, Server: server, Pace: string(c.Databases[0].Pace), Install: g.installed, Open: g.open,
		Progress: func(format string, args ...any) { _, _ = fmt.Fprintf(env.Stderr, format+"\n", args...) },
	}, g)
}

// measuredJob is the job whose passes are measured.
type measuredJob struct {
	kind string
	// args are those of its passes, beside the database.
	args json.RawMessage
	// file is the configuration in which definitions.yml may be named, environ what else is set, duty the key of the
	// share of its time that the worker works, in percent; empty leaves it at its default.
	file    string
	environ []string
	duty    string
	// pass reads the report of a pass.
	pass func(jobrun.Report) (bench.Pass, error)
}

// passOf reads the facts that a benchmark needs of the statistics of a pass; a pass that was skipped has none.
func passOf[S any](read func(jobrun.Report, S) bench.Pass) func(jobrun.Report) (bench.Pass, error) {
	return func(report jobrun.Report) (bench.Pass, error) {
		var stats S
		if err := json.Unmarshal(report.Stats, &stats); err != nil {
			return bench.Pass{}, fmt.Errorf("decode statistics: %w", err)
		}
		pass := read(report, stats)
		if report.Outcome == jobrun.Skipped {
			pass.Trouble = "skipped: " + report.Reason
		}
		return pass, nil
	}
}

// installer installs Sexton in the benchmark's databases and runs passes there.
type installer struct {
	*cli.Env
	// dir holds the files of the configuration.
	dir string
	job measuredJob
}

// config is a configuration for one database, in which the worker works at that duty.
func (g installer) config(url, definitions, duty string) (*config.Config, error) {
	path := filepath.Join(g.dir, config.DefaultFile)
	for name, content := range map[string]string{
		path:                                    g.job.file + "log: {level: warn}\n",
		filepath.Join(g.dir, "definitions.yml"): definitions,
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("write configuration of the benchmark: %w", err)
		}
	}
	environ := append([]string{"SEXTON_DATABASES__MAIN__URL=" + url}, g.job.environ...)
	if g.job.duty != "" {
		environ = append(environ, g.job.duty+"="+duty)
	}
	return config.Load(config.Options{Path: path, Environ: environ})
}

func (g installer) install(ctx context.Context, url, definitions string) (*installation.Bound, error) {
	c, err := g.config(url, definitions, "100")
	if err != nil {
		return nil, err
	}
	all, err := installation.Install(ctx, c, g.Logger(c))
	return all, problem.Doing(err, "install")
}

func (g installer) installed(ctx context.Context, url, definitions string) error {
	all, err := g.install(ctx, url, definitions)
	if err == nil {
		all.Close()
	}
	return err
}

// open connects a worker whose connections are traced.
func (g installer) open(ctx context.Context, url, definitions, duty string, tracer pgx.QueryTracer) (*bench.Worker, error) {
	c, err := g.config(url, definitions, duty)
	if err != nil {
		return nil, err
	}
	all, err := installation.Bind(ctx, c)
	if err != nil {
		return nil, err
	}
	db := &all.Databases[0]
	settings := db.Pool.Config()
	settings.ConnConfig.Tracer = tracer
	traced, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		all.Close()
		return nil, fmt.Errorf("make traced pool: %w", err)
	}
	db.Close()
	db.Pool = traced
	job, err := cli.FindJob(c, g.job.kind)
	if err != nil {
		all.Close()
		return nil, err
	}
	log := g.Logger(c)
	deps := riverjobs.Deps{
		Bindings: &riverjobs.Bindings{}, Config: c, Databases: all.Databases, Definitions: all.Definitions, Logger: log,
		Runner: &jobrun.Runner{Leases: all.Leases(installation.Holder()), Logger: log, Figures: riverjobs.Figures},
	}
	return &bench.Worker{
		Pass: func(ctx context.Context, args json.RawMessage) (bench.Pass, error) {
			if args == nil {
				args = g.job.args
			}
			report, err := job.Run(ctx, deps, riverjobs.Pass{Database: db.Name, Args: args})
			if err == nil {
				err = ctx.Err() // Asked to stop, a pass ends in peace.
			}
			if err != nil {
				return bench.Pass{}, err
			}
			return g.job.pass(report)
		},
		Undo:  func(ctx context.Context) (int64, error) { return undoNewest(ctx, all) },
		Close: all.Close,
	}, nil
}
