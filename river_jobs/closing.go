package riverjobs

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"sexton/internal/database"
	"sexton/internal/fault"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
)

// uniqueWhileUnfinished makes jobs of the same arguments one job while it is waiting or running. `completed` is not among
// the states: what falls due afterwards needs a new one.
func uniqueWhileUnfinished() river.UniqueOpts {
	return river.UniqueOpts{
		ByArgs: true,
		ByState: []rivertype.JobState{
			rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning,
			rivertype.JobStateRetryable, rivertype.JobStateScheduled,
		},
	}
}

// workPass runs one pass for one database as a job, and ends the job with a successor where something is due.
func workPass[T river.JobArgs](
	ctx context.Context, deps Deps, job *river.Job[T],
	run func(context.Context, Deps, Pass) (jobrun.Report, error), database string, due func(context.Context, pgx.Tx) (bool, error),
) error {
	pass, cancel := deps.untilStopped(ctx)
	defer cancel()
	report, err := run(pass, deps, Pass{Database: database})
	if err := settle(ctx, pass, report, err); err != nil {
		return err
	}
	return finish(ctx, deps, job, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		if report.Outcome == jobrun.Skipped {
			return false, nil // The holder of the lease does the work, and looks again at its end.
		}
		return due(ctx, tx)
	})
}

// workItem runs the pass of a job that another kind has inserted, and ends it: with a successor where its time was over
// before it was done. One whose lease somebody else holds comes back soon. Neither that nor a stop costs an attempt.
func workItem[T river.JobArgs](
	ctx context.Context, deps Deps, job *river.Job[T], run func(context.Context, Deps, T) (jobrun.Report, error),
) error {
	pass, cancel := deps.untilStopped(ctx)
	defer cancel()
	report, err := run(pass, deps, job.Args)
	if err := settle(ctx, pass, report, err); err != nil {
		if fault.Judge(err).Lock() {
			// Others were in the way, which costs no attempt either.
			return river.JobSnooze(pace.PauseAfter(1 + snoozes(job.Metadata)))
		}
		return err
	}
	if report.Outcome == jobrun.Skipped && (report.Holder != "" || report.Outdated) {
		return river.JobSnooze(busyRetry)
	}
	return finish(ctx, deps, job, func(context.Context, pgx.Tx) (bool, error) { return report.Outcome == jobrun.OverLimit, nil })
}

// snoozes is how often a job has been put off without an attempt, as River counts it.
func snoozes(metadata []byte) int {
	var counted struct {
		Snoozes int `json:"snoozes"`
	}
	_ = json.Unmarshal(metadata, &counted) // What is not there is 0.
	return counted.Snoozes
}

// foreground runs a pass of such a kind outside River.
func foreground[T river.JobArgs](run func(context.Context, Deps, T) (jobrun.Report, error)) func(context.Context, Deps, Pass) (jobrun.Report, error) {
	return func(ctx context.Context, deps Deps, pass Pass) (jobrun.Report, error) {
		var args T
		if err := json.Unmarshal(pass.Args, &args); err != nil {
			return jobrun.Report{}, fmt.Errorf("read arguments of %s: %w", args.Kind(), err)
		}
		return run(ctx, deps, args)
	}
}

// because adds to a reason what was in the way, if anything was.
func because(reason, held string) string {
	if held == "" {
		return reason
	}
	return reason + "; held up by " + held
}

// settle records what a pass reports, and returns how its job ends where it ends without a further look: nil goes on.
func settle(ctx, pass context.Context, report jobrun.Report, err error) error {
	if err := river.RecordOutput(ctx, report); err != nil {
		return fmt.Errorf("record output: %w", err)
	}
	if err != nil && pass.Err() != nil && ctx.Err() == nil {
		// Asked to stop before it could begin: that costs no attempt.
		return river.JobSnooze(0)
	}
	return err
}

// finish ends a unique job without losing what came in meanwhile. River goes on calling a job running for a
// quarter of a second after its Work has returned, and skips a second one for as long. So the job completes
// itself, in a transaction that first locks its row: an insert that came before has its work committed, and
// the look at due sees it; one that comes later waits for the row and finds the key free. Where something is
// due, the successor is inserted here.
func finish[T river.JobArgs](ctx context.Context, deps Deps, job *river.Job[T], due func(context.Context, pgx.Tx) (bool, error)) error {
	db := deps.jobsDB()
	return pgx.BeginTxFunc(ctx, db.Async(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		client := river.ClientFromContext[pgx.Tx](ctx)
		var own bool
		const lock = `SELECT state = 'running' AND attempted_by[pg_catalog.array_upper(attempted_by, 1)] = $2, ` + database.GenericPlan +
			` FROM "sexton".river_job WHERE id = $1 FOR UPDATE`
		if err := tx.QueryRow(ctx, db.Names.Render(lock), job.ID, client.ID()).Scan(&own, new(string)); err != nil {
			return fmt.Errorf("lock own job: %w", err)
		}
		if !own {
			// This worker was taken for dead and the job given to another one, which will finish it.
			return nil
		}
		more, err := due(ctx, tx)
		if err != nil {
			return fmt.Errorf("look what is due: %w", err)
		}
		if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
			return fmt.Errorf("complete own job: %w", err)
		}
		if !more {
			return nil
		}
		if _, err := client.InsertTx(ctx, tx, job.Args, nil); err != nil {
			return fmt.Errorf("insert successor: %w", err)
		}
		return nil
	})
}
