package app

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	riverjobs "sexton/river_jobs"
)

// plannedJob foresees the work of a job other than the clean-up of loose foreign keys.
type plannedJob struct {
	Kind              string `json:"kind"`
	riverjobs.Planned        //nolint:embeddedstructfieldcheck // the order is that of the document

	// Unit names one of them.
	Unit string `json:"unit"`
	// NextRun is the next tick of its schedule (UTC); null for a kind whose jobs another one inserts. What falls due by a commit
	// is taken at once.
	NextRun *time.Time `json:"next_run"`
	// WaitingFor is why nothing happens; null where nothing stands in the way.
	WaitingFor *string `json:"waiting_for"`
	// Error is why nothing is known, in the time that there is for it.
	Error string `json:"error,omitempty"`
}

// planJobs looks at the kinds whose rows are in the jobs database. One of which that takes too long, or is not allowed, hides no
// other.
func planJobs(ctx context.Context, all *bound) ([]plannedJob, error) {
	var planned []plannedJob
	var states []jobState
	for _, job := range riverjobs.Jobs(all.config) {
		if job.Kind == riverjobs.LooseForeignKeys {
			continue
		}
		if states == nil {
			document, err := readStatus(ctx, all.connections, all.recordedParents)
			if err != nil {
				return nil, err
			}
			states = document.Jobs
		}
		one := plannedJob{Kind: job.Kind, Unit: deletionTable{Table: job.DeletionTable}.unit()}
		if job.Inserted() {
			one.Unit = "job"
		} else if cron, err := job.Cron.Parse(); err == nil {
			next := cron.Next(time.Now().UTC())
			one.NextRun = &next
		}
		for _, state := range states {
			if state.Kind == job.Kind {
				one.WaitingFor = state.WaitingFor
			}
		}
		var err error
		if one.Planned, err = planJob(ctx, all, job.Kind); err != nil {
			if database.Lost(err) || ctx.Err() != nil {
				return nil, err
			}
			one.Error = err.Error()
		}
		planned = append(planned, one)
	}
	return planned, nil
}

// planJob asks in a transaction that can change nothing and in which no statement lasts.
func planJob(ctx context.Context, all *bound, kind string) (planned riverjobs.Planned, err error) {
	db := all.jobs()
	err = pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		limit := strconv.FormatInt(planLimits().StatementTimeout.Milliseconds(), 10)
		_, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('statement_timeout', $1, true), pg_catalog.set_config('lock_timeout', $1, true)", limit)
		if err != nil {
			return fmt.Errorf("limit statements: %w", err)
		}
		planned, err = riverjobs.Plan(ctx, tx, all.config, db, kind)
		return err
	})
	return planned, err
}

func (a *app) printPlannedJobs(jobs []plannedJob) error {
	if len(jobs) == 0 {
		return nil
	}
	a.printf("\n")
	return a.table(func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "JOB\tDUE NOW\tNEXT RUN\tNEXT DUE\tWAITS FOR")
		for _, job := range jobs {
			due := job.text()
			if job.Error != "" {
				due = text(&job.Error)
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", job.Kind, due, moment(job.NextRun), moment(job.NextDueAt), text(job.WaitingFor))
		}
	})
}

// text describes the due work.
func (j plannedJob) text() string {
	said := atLeast(j.Capped) + counted(j.Due, j.Unit)
	if j.PerRun > 0 && j.Due > int64(j.PerRun) {
		said += fmt.Sprintf(" (%d in a run)", j.PerRun)
	}
	if j.RemovalsDue > 0 {
		said += ", " + counted(j.RemovalsDue, "object") + " to remove"
	}
	return said
}

// moment is a time for people, or a dash.
func moment(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}
