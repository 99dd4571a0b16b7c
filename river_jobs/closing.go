package riverjobs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"sexton/internal/database"
)

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
