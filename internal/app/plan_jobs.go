package app

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/words"
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
func planJobs(ctx context.Context, all *installation.Bound) ([]plannedJob, error) {
	var planned []plannedJob
	var states []JobState
	for _, job := range riverjobs.Jobs(all.Config) {
		if job.Kind == riverjobs.LooseForeignKeys {
			continue
		}
		if states == nil {
			document, err := readStatus(ctx, all.Connections, all.RecordedParents)
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
func planJob(ctx context.Context, all *installation.Bound, kind string) (planned riverjobs.Planned, err error) {
	db := all.Jobs()
	err = pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		limit := strconv.FormatInt(planLimits().StatementTimeout.Milliseconds(), 10)
		_, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('statement_timeout', $1, true), pg_catalog.set_config('lock_timeout', $1, true)", limit)
		if err != nil {
			return fmt.Errorf("limit statements: %w", err)
		}
		planned, err = riverjobs.Plan(ctx, tx, all.Config, db, kind)
		return err
	})
	return planned, err
}

func printPlannedJobs(env *cli.Env, jobs []plannedJob) error {
	if len(jobs) == 0 {
		return nil
	}
	env.Printf("\n")
	return env.Table(func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "JOB\tDUE NOW\tNEXT RUN\tNEXT DUE\tWAITS FOR")
		for _, job := range jobs {
			due := job.text()
			if job.Error != "" {
				due = words.Cell(&job.Error)
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", job.Kind, due, words.Moment(job.NextRun), words.Moment(job.NextDueAt), words.Cell(job.WaitingFor))
		}
	})
}

// text describes the due work.
func (j plannedJob) text() string {
	said := words.AtLeast(j.Capped) + words.Counted(j.Due, j.Unit)
	if j.PerRun > 0 && j.Due > int64(j.PerRun) {
		said += fmt.Sprintf(" (%d in a run)", j.PerRun)
	}
	if j.RemovalsDue > 0 {
		said += ", " + words.Counted(j.RemovalsDue, "object") + " to remove"
	}
	return said
}
