package app

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	riverjobs "sexton/river_jobs"
)

func (a *app) jobCommand() *cobra.Command {
	return group("job", "List the jobs, or run one pass of one", "  sexton job list\n  sexton job run loose_foreign_keys_cleanup --json",
		a.jobListCommand(), a.jobRunCommand())
}

// listedJob is one entry of `sexton job list --json`.
type listedJob struct {
	Kind        string     `json:"kind"`
	Queue       string     `json:"queue"`
	Database    string     `json:"database"`
	Schedule    string     `json:"schedule"`
	Summary     string     `json:"summary"`
	LastRun     *time.Time `json:"last_run"`
	LastOutcome *string    `json:"last_outcome"`
}

func (a *app) jobListCommand() *cobra.Command {
	return a.reports(&cobra.Command{
		Use:     "list",
		Short:   "List the enabled jobs with schedule and last run",
		Example: "  sexton job list",
		Args:    cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			all, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer all.close()
			if err := all.checkSchemas(cmd.Context()); err != nil {
				return err
			}
			states, err := jobStates(cmd.Context(), all)
			if err != nil {
				return err
			}
			listed := make([]listedJob, len(states))
			for i, s := range states {
				listed[i] = listedJob{
					Kind: s.job.Kind, Queue: s.job.Queue, Database: s.Database, Schedule: s.job.Schedule, Summary: s.job.Summary,
					LastRun: s.LastRun, LastOutcome: s.LastOutcome,
				}
			}
			if a.json {
				return a.printJSON(listed)
			}
			return a.table(func(w io.Writer) {
				_, _ = fmt.Fprintln(w, "KIND\tDATABASE\tSCHEDULE\tLAST RUN\tOUTCOME")
				for _, job := range listed {
					_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", job.Kind, job.Database, job.Schedule, age(job.LastRun), text(job.LastOutcome))
				}
			})
		}),
	})
}

func (a *app) jobRunCommand() *cobra.Command {
	var databaseName, rawArgs string
	var force bool
	cmd := a.reports(&cobra.Command{
		Use:   "run KIND",
		Short: "Run one pass of a job in the foreground",
		Long: `Runs one pass under the same lease as a worker, so it never works beside another one: where the lease
is taken, the outcome is "skipped" and names the holder. Exits 1 only where the pass failed.`,
		Example: `  sexton job run loose_foreign_keys_cleanup
  sexton job run loose_foreign_keys_cleanup --args '{"database": "main"}' --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("job run needs the KIND of one job; sexton job list shows them")
			}
			return nil
		},
		RunE: a.run(func(cmd *cobra.Command, args []string) error {
			return a.jobRun(cmd, args[0], databaseName, rawArgs, force)
		}),
	})
	cmd.Flags().StringVar(&databaseName, "database", "", "`NAME` of the configured database to serve (default: the first)")
	cmd.Flags().StringVar(&rawArgs, "args", "", "the job's arguments as `JSON`, instead of --database")
	cmd.Flags().BoolVar(&force, "force", false, "run although the kind is paused")
	return cmd
}

func (a *app) jobRun(cmd *cobra.Command, kind, databaseName, rawArgs string, force bool) error {
	ctx := cmd.Context()
	all, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer all.close()
	jobs := riverjobs.Jobs(all.config)
	at := slices.IndexFunc(jobs, func(j riverjobs.Job) bool { return j.Kind == kind })
	if at < 0 {
		a.began = false
		return unknownKind(kind, jobs)
	}
	if databaseName, err = a.chooseDatabase(all, databaseName, rawArgs); err != nil {
		a.began = false
		return err
	}
	if err := all.checkSchemas(ctx); err != nil {
		return err
	}
	defs, err := loadDefinitions(all.config)
	if err != nil {
		return err
	}
	log := a.logger(all.config)
	deps := riverjobs.Deps{
		Config: all.config, Databases: all.databases, Definitions: defs, Logger: log,
		Runner: &jobrun.Runner{Leases: &lease.Manager{Jobs: all.jobs(), Holder: holder()}, Logger: log},
	}
	paused, err := pausedQueue(ctx, all, jobs[at].Queue)
	if err != nil {
		return err
	}
	var report jobrun.Report
	if paused != "" && !force {
		report = jobrun.Report{Kind: kind, Database: databaseName, Outcome: jobrun.Skipped, Reason: paused, Stats: json.RawMessage("{}")}
	} else {
		report, err = jobs[at].Run(ctx, deps, databaseName)
	}
	if printErr := a.printReport(report); printErr != nil {
		return printErr
	}
	return err
}

func unknownKind(kind string, jobs []riverjobs.Job) error {
	kinds := make([]string, len(jobs))
	for i, job := range jobs {
		kinds[i] = job.Kind
	}
	return fmt.Errorf("no job of kind %q is enabled; there are %q", kind, kinds)
}

// chooseDatabase takes the database from --database, from --args, or the first one.
func (a *app) chooseDatabase(all *connections, name, rawArgs string) (string, error) {
	if rawArgs != "" {
		var args struct {
			Database string `json:"database"`
		}
		decoder := json.NewDecoder(strings.NewReader(rawArgs))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&args); err != nil {
			return "", fmt.Errorf("--args %s: %w; it takes {\"database\": NAME}", rawArgs, err)
		}
		if name != "" && args.Database != "" && name != args.Database {
			return "", fmt.Errorf("--database %s and --args %s name different databases", name, rawArgs)
		}
		if args.Database != "" {
			name = args.Database
		}
	}
	if name == "" {
		return all.databases[0].Name, nil
	}
	names := make([]string, len(all.databases))
	for i, db := range all.databases {
		names[i] = db.Name
	}
	if !slices.Contains(names, name) {
		return "", fmt.Errorf("no database %q is configured; there are %q", name, names)
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

// printReport prints the outcome of one pass. For loose foreign keys the statistics also stand at the top
// level of the JSON object.
func (a *app) printReport(report jobrun.Report) error {
	if a.json {
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
		return a.printJSON(document)
	}
	a.printf("%s on %s: %s\n", report.Kind, report.Database, report.Outcome)
	if report.Reason != "" {
		a.printf("  because    %s\n", report.Reason)
	}
	var stats loosefk.Stats
	if err := json.Unmarshal(report.Stats, &stats); err != nil {
		return fmt.Errorf("decode statistics: %w", err)
	}
	if stats.Connection == "" {
		return nil
	}
	a.printf("  tombstones %d processed, %d put off\n", stats.Processed, stats.Rescheduled)
	a.printf("  deleted    %d rows%s\n", stats.DeleteCount, perTable(stats.DeleteCountByTable))
	a.printf("  updated    %d rows%s\n", stats.UpdateCount, perTable(stats.UpdateCountByTable))
	for _, e := range stats.Errors {
		a.printf("  error      %s: SQLSTATE %s: %s (%d times)\n", e.Table, e.SQLState, e.Message, e.Count)
	}
	return nil
}

func perTable(counts map[string]int64) string {
	if len(counts) == 0 {
		return ""
	}
	parts := make([]string, 0, len(counts))
	for _, table := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", table, counts[table]))
	}
	return ": " + strings.Join(parts, ", ")
}
