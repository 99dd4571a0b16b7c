package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sexton/internal/cli"
	"sexton/internal/cli/jobs"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

// benchWhere is the last part of the help text of each benchmark.
const benchWhere = `

Creates a temporary database and drops it at the end, also after an interruption. The database is
on a private Postgres, or on the server of --database-url. The command ignores --config, and all
environment variables except SEXTON_PG_BIN.`

// Command returns the command bench with one subcommand per benchmark.
func Command(env *cli.Env) *cobra.Command {
	return cli.Group("bench", "Measure the speed and overhead of Sexton",
		"  sexton bench latency\n  sexton bench notify --json",
		benchDrainCommand(env), benchLatencyCommand(env), benchNotifyCommand(env), benchIdleCommand(env))
}

func benchLatencyCommand(env *cli.Env) *cobra.Command {
	var events, children int
	cmd := benchmark(env, "latency --events 5 --children 50000",
		"Measure the time from the deletion of a parent to the deletion of its children",
		`Deletes parents one at a time while a worker is running. Measures the time from sending COMMIT until
the children and the tombstone are deleted, and compares it with ON DELETE CASCADE.`,
		func(ctx context.Context, site *Site) (*Report, error) {
			return Latency(ctx, site, events, children)
		})
	cmd.Flags().IntVar(&children, "children", 10, "number of children per parent, `N`")
	cmd.Flags().IntVar(&events, "events", 500, "number of parents to delete, `N`")
	return cmd
}

func benchNotifyCommand(env *cli.Env) *cobra.Command {
	var length float64
	var rounds int
	var clients []int
	cmd := benchmark(env, "notify --clients 8 --rounds 25",
		"Measure how triggers and notifications affect the commit rate of clients",
		`Runs 1, 8 and 32 clients that delete one parent per transaction: without a trigger, with tombstones
only, with a NOTIFY for each deletion, and with Sexton's triggers while a worker is running. In each
round, every variant runs for a short time, in random order. Ratios compare a variant with the
variant "tombstones only" of the same round.`,
		func(ctx context.Context, site *Site) (*Report, error) {
			return Notify(ctx, site, NotifyOptions{Turn: seconds(length), Rounds: rounds, Clients: clients})
		})
	cmd.Flags().Float64Var(&length, "seconds", 1, "duration of one measurement in `SECONDS`, after a warm-up of half that time")
	cmd.Flags().IntVar(&rounds, "rounds", 9, "number of rounds, `N`; results are medians")
	cmd.Flags().IntSliceVar(&clients, "clients", []int{1, 8, 32}, "`NUMBERS` of concurrent clients")
	cli.CheckFlags(cmd, func() error {
		if len(clients) == 0 || slices.Min(clients) <= 0 {
			return errors.New("--clients must be more than 0")
		}
		return nil
	})
	return cmd
}

func benchIdleCommand(env *cli.Env) *cobra.Command {
	var length float64
	cmd := benchmark(env, "idle --seconds 120", "Measure memory and transactions of an idle worker",
		`Runs a worker without pending work in this process, and measures its memory, transactions and
connections.`,
		func(ctx context.Context, site *Site) (*Report, error) {
			if env.DatabaseURL == "" {
				if err := site.StopAutovacuum(ctx); err != nil {
					return nil, err
				}
			}
			return Idle(ctx, site, seconds(length))
		})
	cmd.Flags().Float64Var(&length, "seconds", 30, "duration of the measurement in `SECONDS`")
	return cmd
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// benchmark returns a command that creates a site, calls measure, prints the report, and
// drops the site.
func benchmark(env *cli.Env, example, short, long string,
	measure func(context.Context, *Site) (*Report, error),
) *cobra.Command {
	return measuring(env, example, short, long, func(ctx context.Context) (*Report, error) {
		return onCluster(ctx, env, siteSettings(), func(g *Cluster) (*Report, error) {
			return onSite(ctx, g, measure)
		})
	})
}

// measuring returns a command that calls measure and prints the report. The name of the
// command is the first word of example.
func measuring(env *cli.Env, example, short, long string,
	measure func(context.Context) (*Report, error),
) *cobra.Command {
	name, _, _ := strings.Cut(example, " ")
	cmd := env.JSONCommand(&cobra.Command{
		Use: name, Short: short, Long: long + benchWhere,
		Example: "  sexton bench " + name + "\n  sexton bench " + example + " --json",
	}, func(ctx context.Context, _ []string) error {
		report, err := measure(ctx)
		if err != nil {
			return err
		}
		return env.Print(report, report.Text)
	})
	cli.CheckFlags(cmd, func() error { return positiveFlags(cmd) })
	return cmd
}

// positiveFlags returns an error if a flag was given a number that is not positive.
func positiveFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if n, noNumber := strconv.ParseFloat(f.Value.String(), 64); noNumber == nil && n <= 0 {
			err = fmt.Errorf("--%s must be more than 0", f.Name)
		}
	})
	return err
}

// siteSettings returns the settings of a private server for a Site.
func siteSettings() map[string]string {
	return map[string]string{
		"fsync": "on", "shared_buffers": "256MB",
		// checkpoint_timeout and max_wal_size prevent checkpoints during a measurement.
		"checkpoint_timeout": "1h", "max_wal_size": "8GB",
	}
}

// onSite creates a database with Tables and an installation of Sexton, calls do, and
// drops the database.
func onSite(ctx context.Context, g *Cluster, do func(context.Context, *Site) (*Report, error)) (_ *Report, err error) {
	url, drop, err := g.CreateDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	application, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect to the benchmark's database: %w", err)
	}
	defer application.Close()
	if _, err := application.Exec(ctx, Tables); err != nil {
		return nil, fmt.Errorf("create tables: %w", err)
	}
	all, err := g.install(ctx, url, Definitions)
	if err != nil {
		return nil, err
	}
	defer all.Close()

	site := &Site{
		Cluster: g, URL: url, Pool: application,
		Work: func(ctx context.Context) error {
			return jobs.Work(ctx, all, g.Logger(all.Config), jobs.Endpoint{})
		},
	}
	cfg, _ := riverjobs.Tracking(all.Config, all.Jobs(), nil)
	site.AwakeKey1, site.AwakeKey2 = triggers.AwakeKey(cfg.Wake[0].Kind)
	return do(ctx, site)
}
