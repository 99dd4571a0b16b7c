package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/groupschedule"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/migrate"
	"sexton/internal/operator"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

// runRequest holds the arguments and flags of `sexton job run`.
type runRequest struct {
	kind     string
	database string
	// args holds the arguments of the job as JSON. It may be empty.
	args string
	// force runs the job even if its kind is paused.
	force bool
}

func jobRunCommand(env *cli.Env) *cobra.Command {
	var request runRequest
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "run KIND",
		Short: "Run a job once in the foreground",
		Long: `Runs a job once, under the same lease as a worker, so that the two never run at the same time. If
the lease is taken, the kind is paused, or the loaded definitions differ from the installed
definitions, the outcome is "skipped", with the reason. If all remaining rows are deferred, it
prints why and until when. The exit code is 0 if rows were deferred or the run was skipped, and 1
if it failed.`,
		Example: `  sexton job run loose_foreign_keys_cleanup
  sexton job run loose_foreign_keys_cleanup --args '{"database": "main"}' --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			err := oneKind(cmd, args)
			if err != nil && env.JSON {
				return errors.Join(err, printReport(env, notStarted(request, err)))
			}
			return err
		},
		ValidArgsFunction: completeKind(env),
	}, func(ctx context.Context, args []string) error {
		request.kind = args[0]
		return jobRun(ctx, env, request)
	})
	cmd.Flags().StringVar(&request.database, "database", "",
		"`NAME` of the database (default: the first)")
	cmd.Flags().StringVar(&request.args, "args", "", "job arguments as `JSON`, instead of --database")
	cmd.Flags().BoolVar(&request.force, "force", false, "run even if the kind is paused")
	return cmd
}

// completeKind returns the enabled kinds for shell completion.
func completeKind(a *cli.Env) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, err := a.LoadConfig()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		kinds := render.Each(riverjobs.Jobs(c), func(job riverjobs.Job) string {
			return cobra.CompletionWithDesc(job.Kind,
				job.Summary)
		})
		return kinds, cobra.ShellCompDirectiveNoFileComp
	}
}

// jobRun runs a job and prints the report. With --json, it also prints a report if the
// run did not start.
func jobRun(ctx context.Context, env *cli.Env, request runRequest) error {
	report, err := runOnce(ctx, env, request)
	if report.Outcome == "" && env.JSON && err != nil {
		report = notStarted(request, err)
	}
	if report.Outcome != "" {
		if printErr := printReport(env, report); printErr != nil {
			return printErr
		}
	}
	return err
}

// runReport is the report of a run. WaitingFor is the reason why no remaining row is due.
type runReport struct {
	jobrun.Report

	WaitingFor string `json:"waiting_for,omitempty"`
}

// notStarted returns the report of a run that did not start.
func notStarted(request runRequest, err error) runReport {
	return runReport{Report: jobrun.Report{
		Kind: request.kind, Database: request.database, Outcome: jobrun.Failed, Error: err.Error(),
		Stats: json.RawMessage("{}"),
	}}
}

// runOnce runs a job in the foreground. It checks the input before it acquires the lease,
// so that wrong input does not add a failed run to the history.
func runOnce(ctx context.Context, env *cli.Env, request runRequest) (report runReport, err error) {
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
	if n := len(all.Warnings); n > 0 {
		env.Warn(render.Counted(n, "finding") + " about configuration and definitions; `sexton doctor` lists them")
	}
	warnings, err := installation.StartupWarnings(ctx, all, all.Database(name))
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
			// The error must not wrap the problem.List. Exit would return 2, the exit
			// code of wrong usage, and a missing privilege is not wrong usage.
			return report, errors.New(missing.Error())
		}
	}
	pauses, err := installation.Pauses(ctx, all.Connections)
	if err != nil {
		return report, err
	}
	if paused := pauses[job.Queue]; paused != "" && !request.force {
		return runReport{Report: jobrun.Report{
			Kind: job.Kind, Database: name, Outcome: jobrun.Skipped, Reason: paused + "; --force runs it anyway",
			Stats: json.RawMessage("{}"),
		}}, nil
	}
	log, id := env.Logger(c), installation.Holder()
	stop, err := installation.Beat(ctx, all.Connections, id, log)
	if err != nil {
		return report, err
	}
	defer stop()
	bindings := &riverjobs.Bindings{Foreground: true}
	report.Report, err = job.Run(ctx, riverjobs.Deps{
		Bindings: bindings, Config: c, Databases: all.Databases, Definitions: all.Definitions, Logger: log,
		Runner: &jobrun.Runner{Leases: all.Leases(id), Logger: log},
	}, pass)
	if err != nil && !errors.Is(err, context.Canceled) {
		err = cli.FailedRun(job.Kind, err)
	}
	if err == nil && report.Outcome != jobrun.Skipped {
		report.WaitingFor, err = operator.Deferred(ctx, all, job, name)
	}
	return report, err
}

// choosePass returns the database and the complete arguments of the run.
func choosePass(c *config.Config, job riverjobs.Job, request runRequest) (riverjobs.Pass, error) {
	name, served := request.database, job.Databases[0]
	_, several := job.Args["database"]
	if !several && name != "" && name != served {
		return riverjobs.Pass{}, cli.Usage(fmt.Errorf("--database %s: %s works in the jobs database, which is %s", name,
			job.Kind, served))
	}
	args, err := completeArgs(job, request.args)
	if err != nil {
		return riverjobs.Pass{}, cli.Usage(fmt.Errorf("--args %s: %w", cmp.Or(request.args, "{}"), err))
	}
	if !several {
		return riverjobs.Pass{Database: served, Args: args}, nil
	}
	given := databaseIn(request.args)
	if name != "" && given != "" && name != given {
		return riverjobs.Pass{}, cli.Usage(fmt.Errorf("--database %s and --args %s name different databases", name,
			request.args))
	}
	name, err = cli.ChooseDatabase(c, cmp.Or(name, given))
	return riverjobs.Pass{Database: name}, err
}

// databaseIn returns the value of "database" in the arguments. It returns "" if there is
// no such argument, or if args is invalid.
func databaseIn(args string) string {
	var given struct {
		Database string `json:"database"`
	}
	_ = json.Unmarshal([]byte(args), &given)
	return given.Database
}

// completeArgs returns the arguments of a job with the defaults of missing arguments. It
// returns an error if an argument is unknown, has the wrong type, or is missing without a
// default.
func completeArgs(job riverjobs.Job, raw string) (json.RawMessage, error) {
	given := map[string]json.RawMessage{}
	if raw != "" {
		if err := json.Unmarshal([]byte(raw), &given); err != nil || given == nil {
			return nil, fmt.Errorf("must be a JSON object; %s", argumentList(job))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, known := job.Args[name]; !known {
			return nil, fmt.Errorf("the job has no argument %q; %s", name, argumentList(job))
		}
	}
	complete := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(job.Args)) {
		value, found := given[name]
		switch fallback, optional := job.Defaults[name]; {
		case found:
			parsed, err := parseArg(job.Args[name], value)
			if err != nil {
				return nil, fmt.Errorf("the argument %s %w", name, err)
			}
			complete[name] = parsed
		case optional:
			complete[name] = fallback
		default:
			return nil, fmt.Errorf("the argument %s is missing; %s", name, argumentList(job))
		}
	}
	return json.Marshal(complete)
}

func parseArg(kind string, value json.RawMessage) (any, error) {
	switch kind {
	case migrate.Bigint:
		return decoded[int64](value, "a whole number")
	case migrate.Boolean:
		return decoded[bool](value, "true or false")
	default:
		return decoded[string](value, "a text")
	}
}

// decoded returns the value of an argument as a T. what describes the type in the error.
// null is an error.
func decoded[T any](value json.RawMessage, what string) (any, error) {
	var read *T
	if err := json.Unmarshal(value, &read); err != nil || read == nil {
		return nil, fmt.Errorf("must be %s", what)
	}
	return *read, nil
}

// argumentList describes the arguments of a job for error messages.
func argumentList(job riverjobs.Job) string {
	if len(job.Args) == 0 {
		return job.Kind + " takes no arguments"
	}
	parts := render.Each(slices.Sorted(maps.Keys(job.Args)),
		func(name string) string { return fmt.Sprintf("%q: %s", name, job.Args[name]) })
	return fmt.Sprintf("%s takes {%s}", job.Kind, strings.Join(parts, ", "))
}

// printReport prints the report of a run. With --json, the statistics of the run are in
// "stats" and also at the top level of the document.
func printReport(env *cli.Env, report runReport) error {
	if env.JSON {
		document := map[string]json.RawMessage{}
		if err := json.Unmarshal(report.Stats, &document); err != nil {
			return fmt.Errorf("decode statistics: %w", err)
		}
		encoded, err := json.Marshal(report)
		if err != nil {
			return fmt.Errorf("encode report: %w", err)
		}
		if err := json.Unmarshal(encoded, &document); err != nil {
			return fmt.Errorf("decode report: %w", err)
		}
		return env.PrintJSON(document)
	}
	env.Printf("%s on %s: %s\n", report.Kind, report.Database, report.Outcome)
	if report.Reason != "" {
		env.Printf("  reason     %s\n", report.Reason)
	}
	if report.Kind == riverjobs.AdjournedGroupDeletion {
		return printDecisions(env, report.Stats)
	}
	var stats loosefk.Stats
	if err := json.Unmarshal(report.Stats, &stats); err != nil {
		return fmt.Errorf("decode statistics: %w", err)
	}
	if stats.Connection == "" {
		return nil
	}
	env.Printf("  tombstones %d processed, %d deferred\n", stats.Processed, stats.Rescheduled)
	if stats.Revived > 0 {
		env.Printf("  revived    %s: the parent rows exist again, so their children are kept\n",
			render.Counted(stats.Revived, "tombstone"))
	}
	env.Printf("  deleted    %s%s\n", render.Counted(stats.DeleteCount, "row"), perTable(stats.DeleteCountByTable))
	env.Printf("  updated    %s%s\n", render.Counted(stats.UpdateCount, "row"), perTable(stats.UpdateCountByTable))
	for _, e := range stats.Errors {
		env.Printf("  error      %s\n", e.Text())
	}
	if report.WaitingFor != "" {
		env.Printf("  waiting    %s\n", report.WaitingFor)
	}
	return nil
}

func perTable(counts map[string]int64) string {
	if len(counts) == 0 {
		return ""
	}
	parts := render.Each(slices.Sorted(maps.Keys(counts)), func(table string) string {
		return fmt.Sprintf("%s %d", table,
			counts[table])
	})
	return ": " + strings.Join(parts, ", ")
}

// printDecisions prints the numbers of groups that will be destroyed, were restored, and
// were deferred.
func printDecisions(env *cli.Env, encoded json.RawMessage) error {
	var stats groupschedule.Stats
	if err := json.Unmarshal(encoded, &stats); err != nil {
		return fmt.Errorf("decode statistics: %w", err)
	}
	env.Printf("  groups     %d to be destroyed, %d restored, %d deferred\n", stats.GroupsEnqueued, stats.GroupsRestored,
		stats.GroupsFailed)
	for _, e := range stats.Errors {
		env.Printf("  error      %s\n", e.Text())
	}
	return nil
}
