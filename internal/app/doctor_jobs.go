package app

import (
	"context"
	"fmt"

	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/problem"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// failedTombstones names failed tombstones, the first of them each, as a definition or a constraint may have to change.
func (x *examination) failedTombstones(ctx context.Context, db database.Database) (found []doctor.Finding, _ error) {
	list, err := installation.TombstonesOf(x.Connections, db).List(ctx, loosefk.ListOptions{FailedOnly: true, Limit: failingShown, Window: failureWindow})
	for _, t := range list.Tombstones {
		reason := "for a reason that was not kept"
		if t.LastError != nil {
			reason = *t.LastError
		}
		found = append(found, doctor.Finding{
			Severity: problem.Warning, Object: fmt.Sprintf("%s, key %s", t.Table, t.Key),
			Message: fmt.Sprintf("the clean-up after this row has failed, %s so far: %s", words.Counted(t.Attempts, "attempt"), reason),
			Fix:     fmt.Sprintf("remove the reason; the next attempt is made by itself, or at once with `sexton tombstones retry --id %d`", t.ID),
		})
	}
	if list.More > 0 {
		found = append(found, doctor.Finding{
			Severity: problem.Warning, Object: "table " + tombstoneTable,
			Message: words.Counted(list.More, "more tombstone") + " failed",
			Fix:     "see `sexton tombstones list --failed`",
		})
	}
	return found, err
}

// stalledJobs names jobs that no worker has fetched, or that count as running and are not. A paused kind's are meant to wait.
func (x *examination) stalledJobs(ctx context.Context) (found []doctor.Finding, _ error) {
	for _, job := range riverjobs.Jobs(x.Config) {
		paused, err := PausedQueue(ctx, x.Connections, job.Queue)
		if err != nil {
			return found, err
		}
		if paused != "" || job.Inserted() {
			continue
		}
		for _, name := range job.Databases {
			waits, err := riverjobs.Stalled(ctx, x.Jobs(), job.Kind, name)
			if err != nil {
				return found, err
			}
			if waits != "" {
				found = append(found, doctor.Finding{
					Severity: problem.Warning, Object: job.Kind + "/" + name, Message: "the job waits for " + waits,
					Fix: "start a worker (sexton run), or look into the log of the one that runs",
				})
			}
		}
	}
	return found, nil
}

// pauses tells which jobs somebody has paused.
func (x *examination) pauses(ctx context.Context) ([]doctor.Finding, error) {
	var found []doctor.Finding
	for _, job := range riverjobs.Jobs(x.Config) {
		paused, err := PausedQueue(ctx, x.Connections, job.Queue)
		if err != nil {
			return found, err
		}
		if paused != "" {
			found = append(found, doctor.Finding{
				Severity: problem.Info, Object: job.Kind, Message: "the job is " + paused, Fix: "sexton resume " + job.Kind,
			})
		}
	}
	return found, nil
}
