package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"sexton/internal/components"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/drain/dml"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/problem"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

// Failures are the failures of all components and of River. As JSON, they are the output
// of `sexton failures list --json`.
type Failures struct {
	Failures []components.Failure `json:"failures"`
	// More reports that the limit left out failures. Capped names their sources.
	More   bool     `json:"more"`
	Capped []string `json:"capped,omitempty"`
}

// sources returns the failures of the enabled components, and of River.
func sources(all *installation.Connections) []*components.Failures {
	var found []*components.Failures
	for _, one := range components.Enabled(all.Config) {
		if one.Failures != nil {
			found = append(found, one.Failures)
		}
	}
	return append(found, &components.Failures{Name: "jobs", List: listJobs, Retry: retryJobs})
}

// SourceNames returns the names of all sources of failures.
func SourceNames(c *config.Config) []string {
	return render.Each(sources(&installation.Connections{Config: c}),
		func(source *components.Failures) string { return source.Name })
}

// ReadFailures reads at most limit failures of each source. It reads the other sources if
// one returns an error, and then returns the first error.
func ReadFailures(ctx context.Context, all *installation.Connections, limit int) (Failures, error) {
	found := Failures{Failures: []components.Failure{}}
	var first error
	for _, source := range sources(all) {
		failures, more, err := source.List(ctx, all, limit)
		if err != nil && first == nil {
			first = fmt.Errorf("list failures of %s: %w", source.Name, err)
		}
		found.Failures = append(found.Failures, failures...)
		if more {
			found.More, found.Capped = true, append(found.Capped, source.Name)
		}
	}
	return found, first
}

// RetryFailures makes failed rows due immediately and returns a summary. It writes an
// audit record.
func RetryFailures(ctx context.Context, all *installation.Connections, what components.Retry,
	by database.Change,
) (string, error) {
	source, db, id, err := resolveRetry(all, &what)
	if err != nil {
		return "", err
	}
	by.Action, by.Target = "retry", "all "+what.Source
	if what.ID != "" {
		by.Target = what.Source + " " + what.ID
	}
	if what.Database != "" {
		by.Target += " of " + what.Database
	}
	var summary string
	var failed error
	// Write the audit record in the same transaction as the retry. A refused retry writes
	// none.
	err = pgx.BeginFunc(ctx, all.Jobs().Pool, func(tx pgx.Tx) error {
		if err := database.RecordChange(ctx, all.Jobs(), tx, by); err != nil {
			return err
		}
		summary, failed = source.Retry(ctx, all, db, id)
		if _, refused := errors.AsType[*components.RefusedError](failed); refused {
			return failed
		}
		return nil
	})
	return summary, cmp.Or(failed, err)
}

// resolveRetry returns the source, the database and the ID of a retry. The database may
// be omitted if there is only one.
func resolveRetry(all *installation.Connections,
	what *components.Retry,
) (source *components.Failures, db database.Database, id dml.ID, err error) {
	known := sources(all)
	i := slices.IndexFunc(known, func(source *components.Failures) bool { return source.Name == what.Source })
	if i < 0 {
		return nil, db, id, usageErrorf("unknown source %q; the sources are %s", what.Source,
			render.Listed(SourceNames(all.Config)))
	}
	source, db = known[i], all.Jobs()
	if source.Everywhere {
		if what.Database == "" && len(all.Databases) == 1 {
			what.Database = all.Databases[0].Name
		}
		if what.Database == "" {
			return nil, db, id, usageErrorf("%s need --database NAME, because each database has its own (configured: %s)",
				source.Name, render.Listed(all.Config.DatabaseNames()))
		}
		if db = all.Database(what.Database); db.Pool == nil {
			return nil, db, id, usageErrorf("no database %q is configured", what.Database)
		}
	}
	number, err := strconv.ParseInt(what.ID, 10, 64)
	keyed := source.Keyed && (source.Name != "groups" || all.Jobs().Names.GroupViews)
	if id = (dml.ID{Text: what.ID, Integer: err == nil}); what.ID != "" && number < 1 && !keyed {
		return nil, db, id, usageErrorf("%q is not an ID", what.ID)
	}
	return source, db, id, nil
}

func usageErrorf(format string, args ...any) error {
	return &components.RefusedError{Reason: fmt.Sprintf(format, args...), Wrong: true}
}

// riverWindow is the number of failed jobs that are read. It is larger than the number of
// lines, because jobs with equal arguments share one line.
const riverWindow = 200

// listJobs lists the failed jobs of River, whether or not they have attempts left. It
// omits jobs whose rows another source lists.
func listJobs(ctx context.Context, all *installation.Connections,
	limit int,
) (failures []components.Failure, more bool, err error) {
	failed, err := failedJobs(ctx, all)
	if err != nil {
		return nil, false, err
	}
	runs, err := readRuns(ctx, all)
	if err != nil {
		return nil, false, err
	}
	shown, err := shownByComponents(ctx, all)
	if err != nil {
		return nil, false, err
	}
	seen := map[string]bool{}
	for _, row := range failed {
		if shown(row) {
			continue
		}
		equal := row.Kind + string(row.EncodedArgs)
		if seen[equal] || supersededByRun(all, row, runs) {
			continue
		}
		seen[equal] = true
		if len(failures) == limit {
			return failures, true, nil
		}
		failures = append(failures, jobFailure(all, row))
	}
	return failures, len(failed) == riverWindow, nil
}

// failedJobs returns the failed jobs of the enabled kinds, the newest first.
func failedJobs(ctx context.Context, all *installation.Connections) ([]*rivertype.JobRow, error) {
	client, err := all.RiverClient()
	if err != nil {
		return nil, err
	}
	params := river.NewJobListParams().Kinds(all.Kinds()...).First(riverWindow).
		States(rivertype.JobStateRetryable, rivertype.JobStateDiscarded).OrderBy(river.JobListOrderByID,
		river.SortOrderDesc)
	result, err := client.JobList(ctx, params)
	return result.Jobs, problem.Doing(err, "list failed jobs")
}

// shownByComponents returns a function that reports whether a component already lists the
// row of a job.
func shownByComponents(ctx context.Context, all *installation.Connections) (func(row *rivertype.JobRow) bool, error) {
	var shows []func(*rivertype.JobRow) bool
	for _, source := range sources(all) {
		if source.Shows == nil {
			continue
		}
		one, err := source.Shows(ctx, all)
		if err != nil {
			return nil, err
		}
		shows = append(shows, one)
	}
	return func(row *rivertype.JobRow) bool {
		return slices.ContainsFunc(shows, func(shown func(*rivertype.JobRow) bool) bool { return shown(row) })
	}, nil
}

// supersededByRun reports whether a later run of the kind succeeded. It applies to jobs
// with one attempt, for which the next tick is the retry. A job of a database that is not
// configured has no runs.
func supersededByRun(all *installation.Connections, row *rivertype.JobRow, runs []dbsqlc.RunsLastRow) bool {
	jobs := riverjobs.Jobs(all.Config)
	i := slices.IndexFunc(jobs, func(job riverjobs.Job) bool { return job.Kind == row.Kind })
	if i < 0 || jobs[i].Inserted() || row.MaxAttempts > 1 {
		return false
	}
	var args struct {
		Database string `json:"database"`
	}
	if json.Unmarshal(row.EncodedArgs, &args) != nil {
		return false
	}
	if _, several := jobs[i].Args["database"]; !several {
		args.Database = all.Config.Jobs.Database
	}
	return slices.ContainsFunc(runs, func(run dbsqlc.RunsLastRow) bool {
		return run.Kind == row.Kind && run.Database == args.Database && run.EndedAt != nil &&
			*run.Outcome != string(jobrun.Failed) &&
			(row.FinalizedAt == nil || run.EndedAt.After(*row.FinalizedAt))
	})
}

func jobFailure(all *installation.Connections, row *rivertype.JobRow) components.Failure {
	failure := components.Failure{
		Source: "jobs", ID: strconv.FormatInt(row.ID, 10), What: fmt.Sprintf("job %d, %s", row.ID, row.Kind),
		Attempts: int64(row.Attempt), GivenUp: row.State == rivertype.JobStateDiscarded,
	}
	if all.Config.HTTP.ShowArgs {
		failure.What += " " + string(row.EncodedArgs)
	}
	if len(row.Errors) > 0 {
		last := row.Errors[len(row.Errors)-1]
		failure.Error, failure.Since = last.Error, last.At
	}
	if !failure.GivenUp && row.FinalizedAt == nil {
		failure.Next = row.ScheduledAt
	}
	return failure
}

func retryJobs(ctx context.Context, all *installation.Connections, _ database.Database, id dml.ID) (string, error) {
	ids := []int64{id.Number()}
	if id.Text == "" {
		failures, _, err := listJobs(ctx, all, riverWindow)
		if err != nil {
			return "", err
		}
		ids = render.Each(failures, func(failure components.Failure) int64 {
			// The ID was formatted from an int64, so parsing cannot fail.
			listed, _ := strconv.ParseInt(failure.ID, 10, 64)
			return listed
		})
	}
	client, err := all.RiverClient()
	if err != nil {
		return "", err
	}
	var done int64
	for _, one := range ids {
		switch _, err := client.JobRetry(ctx, one); {
		case errors.Is(err, river.ErrNotFound):
		case err != nil:
			return "", fmt.Errorf("retry job %d: %w", one, err)
		default:
			done++
		}
	}
	if done == 0 && id.Text != "" {
		return "", components.Refuse("job %s no longer exists", id)
	}
	return render.Counted(done, "job") + " due now", nil
}
