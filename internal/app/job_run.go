package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/heartbeat"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

// failedRunError ends a command whose pass failed. The exit code is that of a failure whatever the cause,
// so the cause is not unwrapped.
type failedRunError struct {
	kind  string
	cause error
}

func (e *failedRunError) Error() string { return fmt.Sprintf("run of %s failed: %v", e.kind, e.cause) }

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

func (a *app) jobRunCommand() *cobra.Command {
	var request passRequest
	cmd := a.reports(&cobra.Command{
		Use:   "run KIND",
		Short: "Run one pass of a job in the foreground",
		Long: `Runs one pass under the same lease as a worker, so it never works beside another one: where the lease
is taken, the outcome is "skipped" and names the holder. It is also "skipped", with the reason, where the kind is paused or
other definitions are installed than this command has read. A skipped pass exits 0; only one that failed exits 1.`,
		Example: `  sexton job run loose_foreign_keys_cleanup
  sexton job run loose_foreign_keys_cleanup --args '{"database": "main"}' --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			err := oneKind(cmd, args)
			if err != nil && a.json {
				return errors.Join(err, a.printReport(notBegun(request, err)))
			}
			return err
		},
		ValidArgsFunction: a.completeKind,
		RunE: a.run(func(cmd *cobra.Command, args []string) error {
			request.kind = args[0]
			return a.jobRun(cmd.Context(), request)
		}),
	})
	cmd.Flags().StringVar(&request.database, "database", "", "`NAME` of the configured database to serve (default: the first)")
	cmd.Flags().StringVar(&request.args, "args", "", "the job's arguments as `JSON`, instead of --database")
	cmd.Flags().BoolVar(&request.force, "force", false, "run although the kind is paused")
	return cmd
}

// completeKind offers the kinds that the configuration enables.
func (a *app) completeKind(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := a.loadConfig()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var kinds []string
	for _, job := range riverjobs.Jobs(c) {
		kinds = append(kinds, cobra.CompletionWithDesc(job.Kind, job.Summary))
	}
	return kinds, cobra.ShellCompDirectiveNoFileComp
}

// jobRun prints the report of a pass; with --json also of one that did not begin, as a failed one.
func (a *app) jobRun(ctx context.Context, request passRequest) error {
	report, err := a.runPass(ctx, request)
	if report.Outcome == "" && a.json && err != nil {
		report = notBegun(request, err)
	}
	if report.Outcome != "" {
		if printErr := a.printReport(report); printErr != nil {
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
func (a *app) runPass(ctx context.Context, request passRequest) (report jobrun.Report, err error) {
	c, err := a.loadConfig()
	if err != nil {
		return report, err
	}
	job, err := findJob(c, request.kind)
	if err != nil {
		return report, err
	}
	pass, err := choosePass(c, job, request)
	if err != nil {
		return report, err
	}
	name := pass.Database
	all, err := bindReachable(ctx, c)
	if err != nil {
		return report, err
	}
	defer all.close()
	if err := all.down[name]; err != nil {
		return report, err
	}
	served := slices.IndexFunc(all.databases, func(db database.Database) bool { return db.Name == name })
	warnings, err := warningsOf(ctx, all, all.databases[served])
	if err != nil {
		return report, err
	}
	for _, warning := range warnings {
		_, _ = fmt.Fprintln(a.stderr, "sexton: warning:", warning)
	}
	if job.Kind == riverjobs.LooseForeignKeys {
		missing, err := missingPrivileges(ctx, all, name)
		if err != nil {
			return report, err
		}
		if len(missing) > 0 {
			return report, &deniedError{missing}
		}
	}
	paused, err := pausedQueue(ctx, all.connections, job.Queue)
	if err != nil {
		return report, err
	}
	if paused != "" && !request.force {
		return jobrun.Report{
			Kind: job.Kind, Database: name, Outcome: jobrun.Skipped, Reason: paused + "; --force runs it all the same", Stats: json.RawMessage("{}"),
		}, nil
	}
	log, id := a.logger(c), holder()
	stop, err := beat(ctx, all.connections, id, log)
	if err != nil {
		return report, err
	}
	defer stop()
	noted := &riverjobs.Bindings{Foreground: true}
	defer noted.Close()
	report, err = job.Run(ctx, riverjobs.Deps{
		Bindings: noted, Config: c, Databases: all.databases, Definitions: all.definitions, Logger: log,
		Runner: &jobrun.Runner{Leases: all.leases(id), Logger: log, Figures: riverjobs.Figures},
	}, pass)
	if err != nil && !errors.Is(err, context.Canceled) {
		err = &failedRunError{kind: job.Kind, cause: err}
	}
	return report, err
}

// beat has the pass beat as workers do, so that its silence frees its leases, until stop is called. Before that it frees those of
// processes that are silent: there may be no worker that would.
func beat(ctx context.Context, all *connections, id string, log *slog.Logger) (stop func(), err error) {
	heart := &heartbeat.Heart{DB: all.jobs(), ClientID: id, Silence: all.config.Jobs.Silence, Logger: log, Foreground: true}
	if err := heart.Beat(ctx); err != nil {
		return nil, fmt.Errorf("begin heartbeat: %w", err)
	}
	if _, err := heart.Reclaim(ctx); err != nil {
		return nil, err
	}
	beating, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { logEnd(beating, log, "heartbeat", heart.Run(beating)) })
	return func() { cancel(); running.Wait() }, nil
}

// missingPrivileges are what the role lacks for the children of a database's parents, wherever those live.
func missingPrivileges(ctx context.Context, all *bound, name string) (problem.List, error) {
	var missing problem.List
	for _, db := range all.databases {
		if all.down[db.Name] != nil {
			continue
		}
		found, err := loosefk.MissingPrivileges(ctx, db.Pool, db.Name, all.parents[name])
		if err != nil {
			return nil, err
		}
		missing.Add(found...)
	}
	return missing, nil
}

// warningsOf are what makes a pass slow or leaves it without work, and no reason not to run.
func warningsOf(ctx context.Context, all *bound, db database.Database) ([]string, error) {
	var warnings []string
	for _, p := range all.warnings {
		warnings = append(warnings, p.String())
	}
	for _, other := range all.databases {
		if err := all.down[other.Name]; err != nil {
			warnings = append(warnings, err.Error()+"; what depends on it waits")
		}
	}
	if _, down := all.down[db.Name]; down {
		return warnings, nil
	}
	cfg, tracked := riverjobs.Tracking(all.config, db, all.parents[db.Name])
	err := onConnection(ctx, db, func(conn *pgx.Conn) error {
		findings, err := triggers.Status(ctx, conn, cfg, tracked)
		if slices.ContainsFunc(findings, triggers.Finding.Drift) {
			warnings = append(warnings, "triggers are not as the definitions need them, so deletions may go unrecorded;"+
				" see sexton triggers status, run sexton triggers install")
		}
		return err
	})
	return warnings, err
}

func findJob(c *config.Config, kind string) (riverjobs.Job, error) {
	jobs := riverjobs.Jobs(c)
	kinds := make([]string, len(jobs))
	for i, job := range jobs {
		if job.Kind == kind {
			return job, nil
		}
		kinds[i] = job.Kind
	}
	if len(kinds) == 0 {
		return riverjobs.Job{}, usageError{errors.New("no job is enabled; set loose_foreign_keys.enabled: true")}
	}
	return riverjobs.Job{}, usageError{fmt.Errorf("no job of kind %q is enabled; there is %s%s", kind, listed(kinds), meant(kind, kinds))}
}

// choosePass takes database and arguments from the request.
func choosePass(c *config.Config, job riverjobs.Job, request passRequest) (riverjobs.Pass, error) {
	if _, several := job.Args["database"]; several {
		name, err := chooseDatabase(c, request.database, request.args)
		return riverjobs.Pass{Database: name}, err
	}
	served := job.Databases[0]
	if request.database != "" && request.database != served {
		return riverjobs.Pass{}, usageError{fmt.Errorf("--database %s: %s works in the jobs database, which is %s", request.database, job.Kind, served)}
	}
	args, err := completeArgs(job, request.args)
	if err != nil {
		return riverjobs.Pass{}, usageError{fmt.Errorf("--args %s: %w", cmp.Or(request.args, "{}"), err)}
	}
	return riverjobs.Pass{Database: served, Args: args}, nil
}

// chooseDatabase takes the database from --database, from --args, or the first one.
func chooseDatabase(c *config.Config, name, rawArgs string) (string, error) {
	if rawArgs != "" {
		inArgs, err := databaseInArgs(rawArgs)
		if err != nil {
			return "", usageError{fmt.Errorf("--args %s: %w", rawArgs, err)}
		}
		if name != "" && inArgs != "" && name != inArgs {
			return "", usageError{fmt.Errorf("--database %s and --args %s name different databases", name, rawArgs)}
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
		return "", usageError{fmt.Errorf("no database %q is configured; there is %s%s", name, listed(names), meant(name, names))}
	}
	return name, nil
}

// databaseInArgs reads the arguments of a kind that serves several databases, which has this one.
func databaseInArgs(raw string) (string, error) {
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

// holder names this process in leases, for people who have to find it.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), rand.Text()[:6])
}
