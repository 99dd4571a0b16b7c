package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"sexton/internal/dbsqlc"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/web/page"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// riverWindow is how many failed jobs are looked at: repeated failures of equal jobs are one line.
const riverWindow = 200

// riverFailures are jobs of River's that wait for another attempt, or have had their last, except jobs whose rows stand in
// another source.
type riverFailures struct{ all *installation.Connections }

func (riverFailures) name() string { return "jobs" }

func (s riverFailures) list(ctx context.Context, limit int) (failures []page.Failure, more bool, err error) {
	failed, err := s.failed(ctx)
	if err != nil {
		return nil, false, err
	}
	runs, _, err := readRuns(ctx, s.all)
	if err != nil {
		return nil, false, err
	}
	shown, err := s.shownElsewhere(ctx)
	if err != nil {
		return nil, false, err
	}
	seen := map[string]bool{}
	for _, row := range failed {
		if shown(row) {
			continue
		}
		equal := row.Kind + string(row.EncodedArgs)
		if seen[equal] || s.overcome(row, runs) {
			continue
		}
		seen[equal] = true
		if len(failures) == limit {
			return failures, true, nil
		}
		failures = append(failures, s.failure(row))
	}
	return failures, len(failed) == riverWindow, nil
}

// failed are the jobs of the enabled kinds that failed, the newest first.
func (s riverFailures) failed(ctx context.Context) ([]*rivertype.JobRow, error) {
	client, err := s.all.RiverClient()
	if err != nil {
		return nil, err
	}
	params := river.NewJobListParams().Kinds(s.all.Kinds()...).First(riverWindow).
		States(rivertype.JobStateRetryable, rivertype.JobStateDiscarded).OrderBy(river.JobListOrderByID, river.SortOrderDesc)
	result, err := client.JobList(ctx, params)
	if err != nil {
		return nil, fmt.Errorf("list failed jobs: %w", err)
	}
	return result.Jobs, nil
}

// shownElsewhere tells which jobs need no line here.
func (s riverFailures) shownElsewhere(ctx context.Context) (func(row *rivertype.JobRow) bool, error) {
	groups := map[int64]bool{}
	if s.all.Config.AdjournedGroups.Enabled {
		var err error
		if groups, err = groupFailures(s).groupsListed(ctx); err != nil {
			return nil, err
		}
	}
	return func(row *rivertype.JobRow) bool {
		return row.Kind == riverjobs.MigrateExternalDiff || groups[groupOf(row)]
	}, nil
}

// overcome reports whether a job that is tried once failed, and a later run of its kind did not: its next tick was the retry.
func (s riverFailures) overcome(row *rivertype.JobRow, runs []dbsqlc.RunsLastRow) bool {
	jobs := riverjobs.Jobs(s.all.Config)
	at := slices.IndexFunc(jobs, func(job riverjobs.Job) bool { return job.Kind == row.Kind })
	if at < 0 || jobs[at].Inserted() || row.MaxAttempts > 1 {
		return false
	}
	return !slices.ContainsFunc(runs, func(run dbsqlc.RunsLastRow) bool {
		return run.Kind == row.Kind && (run.Outcome == nil || *run.Outcome == string(jobrun.Failed))
	})
}

func (s riverFailures) failure(row *rivertype.JobRow) page.Failure {
	failure := page.Failure{
		Source: s.name(), ID: strconv.FormatInt(row.ID, 10), What: fmt.Sprintf("job %d, %s", row.ID, row.Kind),
		Attempts: int64(row.Attempt), GivenUp: row.State == rivertype.JobStateDiscarded,
	}
	if s.all.Config.HTTP.ShowArgs {
		failure.What += " " + string(row.EncodedArgs)
	}
	if len(row.Errors) > 0 {
		failure.Error = row.Errors[len(row.Errors)-1].Error
	}
	if !failure.GivenUp {
		failure.Next = row.ScheduledAt
	}
	return failure
}

func (s riverFailures) retry(ctx context.Context, _, text string, record func() error) (string, error) {
	id, err := wantedID(text)
	if err != nil {
		return "", err
	}
	ids := []int64{id}
	if id == 0 {
		failures, _, err := s.list(ctx, shownFailures)
		if err != nil {
			return "", err
		}
		ids = ids[:0]
		for _, failure := range failures {
			listed, _ := strconv.ParseInt(failure.ID, 10, 64) // It was written from a number.
			ids = append(ids, listed)
		}
	}
	client, err := s.all.RiverClient()
	if err != nil {
		return "", err
	}
	if err := record(); err != nil {
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
	if done == 0 && id != 0 {
		return "", &page.RefusedError{Reason: "there is no job " + text + " any more"}
	}
	return words.Counted(done, "job") + " due now", nil
}
