package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// deniedError ends a command whose files and tables are right but whose role may not do the work. That is a
// failure and no wrong input, so the list is not unwrapped.
type deniedError struct{ missing problem.List }

func (e *deniedError) Error() string { return e.missing.Error() }

// passRequest holds the arguments of `sexton job run`.
type passRequest struct {
	kind     string
	database string
	// args are the job's arguments as JSON; empty where none are given.
	args string
	// force runs a kind that is paused.
	force bool
}

func jobRunCommand(env *cli.Env) *cobra.Command {
	var request passRequest
	cmd := env.Reports(&cobra.Command{
		Use:   "run KIND",
		Short: "Run one pass of a job in the foreground",
		Long: `Runs one pass under the same lease as a worker, so it never works beside another one: where the lease
is taken, the outcome is "skipped" and names the holder. It is also "skipped", with the reason, where the kind is paused or
other definitions are installed than this command has read. A skipped pass exits 0; only one that failed exits 1.`,
		Example: `  sexton job run loose_foreign_keys_cleanup
  sexton job run loose_foreign_keys_cleanup --args '{"database": "main"}' --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			err := oneKind(cmd, args)
			if err != nil && env.JSON {
				return errors.Join(err, printReport(env, notBegun(request, err)))
			}
			return err
		},
		ValidArgsFunction: completeKind(env),
		RunE: env.Run(func(cmd *cobra.Command, args []string) error {
			request.kind = args[0]
			return jobRun(cmd.Context(), env, request)
		}),
	})
	cmd.Flags().StringVar(&request.database, "database", "", "`NAME` of the configured database to serve (default: the first)")
	cmd.Flags().StringVar(&request.args, "args", "", "the job's arguments as `JSON`, instead of --database")
	cmd.Flags().BoolVar(&request.force, "force", false, "run although the kind is paused")
	return cmd
}

// completeKind offers the kinds that the configuration enables.
func completeKind(a *cli.Env) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, err := a.LoadConfig()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var kinds []string
		for _, job := range riverjobs.Jobs(c) {
			kinds = append(kinds, cobra.CompletionWithDesc(job.Kind, job.Summary))
		}
		return kinds, cobra.ShellCompDirectiveNoFileComp
	}
}

// jobRun prints the report of a pass; with --json also of one that did not begin, as a failed one.
func jobRun(ctx context.Context, env *cli.Env, request passRequest) error {
	report, err := runPass(ctx, env, request)
	if report.Outcome == "" && env.JSON && err != nil {
		report = notBegun(request, err)
	}
	if report.Outcome != "" {
		if printErr := printReport(env, report); printErr != nil {
			return printErr
		}
	}
	return err
}

// notBegun is the report of a pass that did not begin.
func notBegun(request passRequest, err error) jobrun.Report {
	return jobrun.Report{Kind: request.kind, Database: request.database, Outcome: jobrun.Failed, Error: err.Error(), Stats: json.RawMessage("{}")}
}

// runPass checks everything that a person may have got wrong before it takes the lease, so that wrong input
// leaves no trace, not even a failed run in the history.
func runPass(ctx context.Context, env *cli.Env, request passRequest) (report jobrun.Report, err error) {
	c, err := env.LoadConfig()
	if err != nil {
		return report, err
	}
	job, err := cli.FindJob(c, request.kind)
	if err != nil {
		return report, err
	}
	pass, err := choosePass(c, job, request)
	if err != nil {
		return report, err
	}
	name := pass.Database
	all, err := installation.BindReachable(ctx, c)
	if err != nil {
		return report, err
	}
	defer all.Close()
	if err := all.Down[name]; err != nil {
		return report, err
	}
	warnings, err := installation.WarningsOf(ctx, all, all.Database(name))
	if err != nil {
		return report, err
	}
	for _, warning := range warnings {
		env.Warn(warning)
	}
	if job.Kind == riverjobs.LooseForeignKeys {
		missing, err := installation.MissingPrivileges(ctx, all, name)
		if err != nil {
			return report, err
		}
		if len(missing) > 0 {
			return report, &deniedError{missing}
		}
	}
	pauses, err := installation.Pauses(ctx, all.Connections)
	if err != nil {
		return report, err
	}
	if paused := pauses[job.Queue]; paused != "" && !request.force {
		return jobrun.Report{
			Kind: job.Kind, Database: name, Outcome: jobrun.Skipped, Reason: paused + "; --force runs it all the same", Stats: json.RawMessage("{}"),
		}, nil
	}
	log, id := env.Logger(c), installation.Holder()
	stop, err := installation.Beat(ctx, all.Connections, id, log)
	if err != nil {
		return report, err
	}
	defer stop()
	noted := &riverjobs.Bindings{Foreground: true}
	defer noted.Close()
	report, err = job.Run(ctx, riverjobs.Deps{
		Bindings: noted, Config: c, Databases: all.Databases, Definitions: all.Definitions, Logger: log,
		Runner: &jobrun.Runner{Leases: all.Leases(id), Logger: log, Figures: riverjobs.Figures},
	}, pass)
	if err != nil && !errors.Is(err, context.Canceled) {
		err = &cli.FailedRunError{Kind: job.Kind, Cause: err}
	}
	return report, err
}

// choosePass takes database and arguments from the request.
func choosePass(c *config.Config, job riverjobs.Job, request passRequest) (riverjobs.Pass, error) {
	if _, several := job.Args["database"]; several {
		name, err := cli.ChooseDatabase(c, request.database, request.args)
		return riverjobs.Pass{Database: name}, err
	}
	served := job.Databases[0]
	if request.database != "" && request.database != served {
		return riverjobs.Pass{}, cli.Usage(fmt.Errorf("--database %s: %s works in the jobs database, which is %s", request.database, job.Kind, served))
	}
	args, err := completeArgs(job, request.args)
	if err != nil {
		return riverjobs.Pass{}, cli.Usage(fmt.Errorf("--args %s: %w", cmp.Or(request.args, "{}"), err))
	}
	return riverjobs.Pass{Database: served, Args: args}, nil
}
