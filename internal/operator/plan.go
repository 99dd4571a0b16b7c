package operator

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/component"
	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/loosefk/dryrun"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

// PlannedDatabase is one entry of `sexton plan --json`.
type PlannedDatabase struct {
	Database       string `json:"database"`
	*dryrun.Result        //nolint:embeddedstructfieldcheck // the order is that of the document
	// Jobs are the other enabled jobs, whose rows are in the jobs database; absent elsewhere, and where there is none.
	Jobs []PlannedJob `json:"jobs,omitempty"`
	// Unreachable is why nothing is known of the database: what definitions have their parents there, for one.
	Unreachable string `json:"unreachable,omitempty"`
}

// Plan foresees a pass of every kind.
func Plan(ctx context.Context, all *installation.Bound) ([]PlannedDatabase, error) {
	runs, err := dryrun.Plan(ctx, components.PlanSites(all.Connections, all.Parents), components.PlanLimits())
	if err != nil {
		return nil, err
	}
	plans := make([]PlannedDatabase, len(all.Databases))
	for i, db := range all.Databases {
		plans[i] = PlannedDatabase{Database: db.Name, Result: runs[db.Name]}
		if down := all.Down[db.Name]; down != nil {
			plans[i].Unreachable = down.Error()
		}
		if db.Name == all.Jobs().Name {
			if plans[i].Jobs, err = planJobs(ctx, all); err != nil {
				return nil, err
			}
		}
	}
	return plans, nil
}

// PlannedJob foresees the work of a job other than the clean-up of loose foreign keys.
type PlannedJob struct {
	Kind              string `json:"kind"`
	component.Planned        //nolint:embeddedstructfieldcheck // the order is that of the document

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
func planJobs(ctx context.Context, all *installation.Bound) ([]PlannedJob, error) {
	var planned []PlannedJob
	var states []JobState
	for _, job := range riverjobs.Jobs(all.Config) {
		if job.Kind == riverjobs.LooseForeignKeys {
			continue
		}
		if states == nil {
			reading, err := Read(ctx, Bound(all))
			if err != nil {
				return nil, err
			}
			states = reading.Jobs
		}
		one := PlannedJob{Kind: job.Kind, Unit: components.Unit(job.DeletionTable)}
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
func planJob(ctx context.Context, all *installation.Bound, kind string) (planned component.Planned, err error) {
	db := all.Jobs()
	err = pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		limit := strconv.FormatInt(components.PlanLimits().StatementTimeout.Milliseconds(), 10)
		_, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('statement_timeout', $1, true), pg_catalog.set_config('lock_timeout', $1, true)", limit)
		if err != nil {
			return fmt.Errorf("limit statements: %w", err)
		}
		planned, err = components.Plan(ctx, tx, all.Config, db, kind)
		return err
	})
	return planned, err
}

// Text describes the due work.
func (j PlannedJob) Text() string {
	said := words.AtLeast(j.Capped) + words.Counted(j.Due, j.Unit)
	if j.PerRun > 0 && j.Due > int64(j.PerRun) {
		said += fmt.Sprintf(" (%d in a run)", j.PerRun)
	}
	if j.RemovalsDue > 0 {
		said += ", " + words.Counted(j.RemovalsDue, "object") + " to remove"
	}
	return said
}
