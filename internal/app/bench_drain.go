package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"sexton/internal/bench"
	"sexton/internal/config"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	riverjobs "sexton/river_jobs"
)

// looseForeignKeys is the kind whose passes are measured.
const looseForeignKeys = "loose_foreign_keys_cleanup"

// allSets stands for every data set.
const allSets = "all"

func (a *app) benchDrainCommand() *cobra.Command {
	var o bench.DrainOptions
	var set string
	cmd := a.groundBenchmark("drain --set wide --scale 0.2", "Speed of Sexton against one statement, native cascade and the original's",
		`Deletes parents and lets their children go in four ways, each on a fresh copy of the same data: by passes of
Sexton, by one DELETE joined to the tombstones, by ON DELETE CASCADE or SET NULL, and by statements of the
original's shape. Checks after each that exactly the right rows are gone. Data sets: wide (10,000 parents with
100 children), fanout (2,000 parents with 50 children in each of 20 tables), skew (one parent with a million
children, 1,000 with 10), nullify (wide with three more indexes, and children that stay).`,
		func() error {
			if o.Duty > 100 {
				return errors.New("--duty must be at most 100")
			}
			o.Sets = bench.DrainSets()
			if set == allSets {
				return nil
			}
			if !slices.Contains(o.Sets, set) {
				return fmt.Errorf("--set must be one of %s, %s", strings.Join(o.Sets, ", "), allSets)
			}
			o.Sets = []string{set}
			return nil
		},
		func(ctx context.Context, ground *bench.Ground) (bench.Report, error) {
			return bench.Drain(ctx, ground, o)
		})
	cmd.Flags().StringVar(&set, "set", allSets, "data set `NAME`: wide, fanout, skew, nullify or all")
	cmd.Flags().Float64Var(&o.Scale, "scale", 1, "`FRACTION` of the full size")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 3, "how often to measure each, `N`; the median counts")
	cmd.Flags().BoolVar(&o.Foreground, "foreground", false, "also measure clients that use the child tables meanwhile")
	cmd.Flags().IntVar(&o.Duty, "duty", 50, "beside them the worker works `PERCENT` of its time (pace adaptive); elsewhere all of it")
	return cmd
}

func (a *app) benchScaleCommand() *cobra.Command {
	var o bench.ScaleOptions
	var most int64
	cmd := a.groundBenchmark("scale --max 1000000 --old-snapshot", "Cost per row and memory by the size of the backlog",
		`Drains backlogs of 10,000, 100,000, 1,000,000 and 10,000,000 tombstones with one child each. With
--old-snapshot each also while another session holds a snapshot from before. The largest takes some 10 GB of
disk and many minutes.`,
		func() error {
			if most < bench.SmallestBacklog || most > bench.LargestBacklog {
				return fmt.Errorf("--max must be between %d and %d", bench.SmallestBacklog, bench.LargestBacklog)
			}
			o.Sizes = bench.Backlogs(most)
			return nil
		},
		func(ctx context.Context, ground *bench.Ground) (bench.Report, error) {
			return bench.Scale(ctx, ground, o)
		})
	cmd.Flags().Int64Var(&most, "max", bench.LargestBacklog, "leave out backlogs of more than `N` tombstones")
	cmd.Flags().BoolVar(&o.OldSnapshot, "old-snapshot", false, "measure also beside an old snapshot")
	return cmd
}

// groundBenchmark is benchmark for those that make databases themselves. Check looks at the flags.
func (a *app) groundBenchmark(
	example, short, long string, check func() error, measure func(context.Context, *bench.Ground) (bench.Report, error),
) *cobra.Command {
	var pace string
	name, _, _ := strings.Cut(example, " ")
	cmd := a.reports(&cobra.Command{
		Use: name, Short: short, Long: long + benchWhere, Args: noArguments,
		Example: "  sexton bench " + name + "\n  sexton bench " + example + " --json",
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if err := positiveFlags(cmd); err != nil {
				return err
			}
			if err := check(); err != nil {
				return usageError{err}
			}
			if choices := config.Pace("").Choices(); pace != "" && !slices.Contains(choices, pace) {
				return usageError{fmt.Errorf("--pace must be one of %s", strings.Join(choices, ", "))}
			}
			var report bench.Report
			err := a.onGround(cmd.Context(), pace, func(ground *bench.Ground) (err error) {
				report, err = measure(cmd.Context(), ground)
				return err
			})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(report)
			}
			return a.table(report.Text)
		}),
	})
	cmd.Flags().StringVar(&pace, "pace", "", "`NAME` of the worker's pace, whose limits per pass are lifted (default: the configuration's own default)")
	return cmd
}

// onGround hands over the given server, or a private one that holds the data in its memory.
func (a *app) onGround(ctx context.Context, pace string, do func(*bench.Ground) error) error {
	return a.onServer(ctx, bench.ServerSettings(), func(url string) error { return a.onGroundOf(ctx, url, pace, do) })
}

// onGroundOf is onGround for a server that is there.
func (a *app) onGroundOf(ctx context.Context, url, pace string, do func(*bench.Ground) error) (err error) {
	dir, err := os.MkdirTemp("", "sexton-bench-")
	if err != nil {
		return fmt.Errorf("create folder for the benchmark: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	g := ground{app: a, dir: dir, pace: pace}
	c, err := g.config(url, bench.Definitions, 100)
	if err != nil {
		return err
	}
	admin, err := open(ctx, c)
	if err != nil {
		return err
	}
	defer admin.close()
	return do(&bench.Ground{
		Admin: admin.jobs().Pool, AdminURL: url, Pace: string(c.Databases[0].Pace),
		Install: g.install, Open: g.open,
		Progress: func(format string, args ...any) { _, _ = fmt.Fprintf(a.stderr, format+"\n", args...) },
	})
}

// ground installs Sexton in the benchmark's databases and runs passes there.
type ground struct {
	*app
	// dir holds the files of the configuration.
	dir  string
	pace string
}

// config is a configuration for one database, in which nothing but time ends a pass and the worker works duty
// percent of it.
func (g ground) config(url, definitions string, duty int) (*config.Config, error) {
	path := filepath.Join(g.dir, config.DefaultFile)
	for name, content := range map[string]string{
		path:                                    "loose_foreign_keys: {definitions: [definitions.yml]}\nlog: {level: warn}\n",
		filepath.Join(g.dir, "definitions.yml"): definitions,
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("write configuration of the benchmark: %w", err)
		}
	}
	const unlimited = "1000000000"
	environ := []string{
		"SEXTON_DATABASES__MAIN__URL=" + url, "SEXTON_DATABASES__MAIN__LIMITS__RUNTIME=50s",
		"SEXTON_LOOSE_FOREIGN_KEYS__DUTY=" + strconv.Itoa(duty),
	}
	if g.pace != "" {
		environ = append(environ, "SEXTON_DATABASES__MAIN__PACE="+g.pace)
	}
	if g.pace != "" && g.pace != string(config.Adaptive) { // Which has none, and works otherwise where it is given one.
		environ = append(environ, "SEXTON_DATABASES__MAIN__LIMITS__DELETES="+unlimited, "SEXTON_DATABASES__MAIN__LIMITS__UPDATES="+unlimited)
	}
	return config.Load(config.Options{Path: path, Environ: environ})
}

func (g ground) install(ctx context.Context, url, definitions string) error {
	c, err := g.config(url, definitions, 100)
	if err != nil {
		return err
	}
	all, err := install(ctx, c, newLogger(g.stderr, c.Log))
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	all.close()
	return nil
}

// open connects a worker whose connections are traced.
func (g ground) open(ctx context.Context, url, definitions string, duty int, tracer pgx.QueryTracer) (*bench.Worker, error) {
	c, err := g.config(url, definitions, duty)
	if err != nil {
		return nil, err
	}
	all, err := bind(ctx, c)
	if err != nil {
		return nil, err
	}
	db := &all.databases[0]
	settings := db.Pool.Config()
	settings.ConnConfig.Tracer = tracer
	traced, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		all.close()
		return nil, fmt.Errorf("make traced pool: %w", err)
	}
	db.Pool.Close()
	db.Pool = traced
	job, err := findJob(c, looseForeignKeys)
	if err != nil {
		all.close()
		return nil, err
	}
	log := newLogger(g.stderr, c.Log)
	deps := riverjobs.Deps{
		Bindings: &riverjobs.Bindings{}, Config: c, Databases: all.databases, Definitions: all.definitions, Logger: log,
		Runner: &jobrun.Runner{Leases: &lease.Manager{Jobs: all.jobs(), Holder: holder()}, Logger: log},
	}
	return &bench.Worker{
		Pass: func(ctx context.Context) (bench.Pass, error) {
			report, err := job.Run(ctx, deps, riverjobs.Pass{Database: db.Name})
			if err == nil {
				err = ctx.Err() // Asked to stop, a pass ends in peace.
			}
			if err != nil {
				return bench.Pass{}, err
			}
			return passOf(report)
		},
		Close: all.close,
	}, nil
}

// passOf is what a benchmark wants to know of a pass.
func passOf(report jobrun.Report) (bench.Pass, error) {
	var stats loosefk.Stats
	if err := json.Unmarshal(report.Stats, &stats); err != nil {
		return bench.Pass{}, fmt.Errorf("decode statistics: %w", err)
	}
	pass := bench.Pass{
		// What failed in a pass is left to the next one.
		More: report.Outcome == jobrun.OverLimit || len(stats.Errors) > 0,
		Rows: stats.DeleteCount + stats.UpdateCount, Tombstones: stats.Processed,
	}
	switch {
	case report.Outcome == jobrun.Skipped:
		pass.Trouble = "skipped: " + report.Reason
	case stats.Rescheduled > 0:
		pass.Trouble = fmt.Sprintf("%d tombstones were put off", stats.Rescheduled)
		if len(stats.Errors) > 0 {
			pass.Trouble += ": " + stats.Errors[0].Message
		}
	}
	return pass, nil
}
