package riverjobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"sexton/internal/fault"
)

// tickLock bounds how long a tick waits for another transaction that inserts the same job and has not ended. While it waits, other schedules
// fall due, and River inserts those together: within this time that is one at most, as they are set apart.
const tickLock = "100ms"

// GetExecutor bounds the lock waits of insertions in River's own transactions. Those are of ticks: all else is inserted in transactions of ours.
// And it gives jobs times by the server's clock, where River reckons with the worker's: one that is an hour ahead would put every failed or
// snoozed job off for that hour.
func (d *driver) GetExecutor() riverdriver.Executor { return executor{d.Driver.GetExecutor(), d} }

type executor struct {
	riverdriver.Executor

	driver *driver
}

func (e executor) Begin(ctx context.Context) (riverdriver.ExecutorTx, error) {
	tx, err := e.Executor.Begin(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // River words it
	}
	return transaction{inserter{tx, e.driver}, e.driver.ticker}, nil
}

// transaction is one of River's own.
type transaction struct {
	inserter

	ticker *ticker
}

func (t transaction) JobInsertFastMany(ctx context.Context, params *riverdriver.JobInsertFastManyParams) ([]*riverdriver.JobInsertFastResult, error) {
	if err := t.Exec(ctx, "SET LOCAL lock_timeout = '"+tickLock+"'"); err != nil {
		return nil, err //nolint:wrapcheck // River words it
	}
	results, err := t.inserter.JobInsertFastMany(ctx, params)
	if fault.Judge(err).Lock() {
		err = fmt.Errorf("another transaction enqueues the same job and has not ended; the tick comes again within a minute: %w", err)
	}
	if err == nil {
		err = t.ticker.record(ctx, t.ExecutorTx, params.Jobs)
	}
	return results, err
}

func (t transaction) JobSchedule(ctx context.Context, params *riverdriver.JobScheduleParams) ([]*riverdriver.JobScheduleResult, error) {
	corrected := *params
	corrected.Now = nil                              // River's query takes the server's then.
	return t.ExecutorTx.JobSchedule(ctx, &corrected) //nolint:wrapcheck // River words it
}

// UnwrapExecutor is for insertions in transactions of ours.
func (d *driver) UnwrapExecutor(tx pgx.Tx) riverdriver.ExecutorTx {
	return inserter{d.Driver.UnwrapExecutor(tx), d}
}

// inserter inserts jobs that are due now: by the worker's clock that may be an hour ahead, and such a job keeps out every other one of its kind.
type inserter struct {
	riverdriver.ExecutorTx

	driver *driver
}

// JobInsertFastMany inserts at the server's now(), for which River's query takes a zero time. The parameters are River's own, and may be used again.
func (i inserter) JobInsertFastMany(ctx context.Context, params *riverdriver.JobInsertFastManyParams) ([]*riverdriver.JobInsertFastResult, error) {
	corrected := *params
	corrected.Jobs = make([]*riverdriver.JobInsertFastParams, len(params.Jobs))
	for n, job := range params.Jobs {
		due := *job
		due.ScheduledAt = new(time.Time)
		corrected.Jobs[n] = &due
	}
	return i.ExecutorTx.JobInsertFastMany(ctx, &corrected) //nolint:wrapcheck // River words it
}

// JobSetStateIfRunningMany ends a job in a transaction of ours, with its output.
func (i inserter) JobSetStateIfRunningMany(ctx context.Context, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	rows, err := i.ExecutorTx.JobSetStateIfRunningMany(ctx, params)
	for _, row := range rows {
		i.driver.ended.Store(row.ID, row)
	}
	return rows, err //nolint:wrapcheck // River words it
}

// ownJobsSQL locks the jobs $1 that the client $2 works on still, and tells the server's time.
const ownJobsSQL = `WITH own AS (
    SELECT job.id FROM "sexton".river_job AS job
    WHERE job.id OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND job.state::pg_catalog.text OPERATOR(pg_catalog.=) 'running'
        AND job.attempted_by[pg_catalog.array_upper(job.attempted_by, 1)] OPERATOR(pg_catalog.=) $2
    FOR UPDATE
) SELECT pg_catalog.clock_timestamp(), coalesce(pg_catalog.array_agg(own.id), '{}') FROM own`

// JobSetStateIfRunningMany writes that jobs failed or were snoozed, by the server's clock. River goes by their IDs alone: a job that was taken from
// this worker runs elsewhere, and its row must stay as it is. River also completes jobs that have completed themselves, some time later and on
// another connection: there is nothing left to write.
func (e executor) JobSetStateIfRunningMany(ctx context.Context, params *riverdriver.JobSetStateIfRunningManyParams) (rows []*rivertype.JobRow, _ error) {
	var asked []int64
	for i, id := range params.ID {
		row, ended := e.driver.ended.LoadAndDelete(id)
		switch {
		case params.State[i] != rivertype.JobStateCompleted:
			asked = append(asked, id)
		case ended:
			rows = append(rows, row.(*rivertype.JobRow)) //nolint:forcetypeassert // no others are stored
		}
	}
	if len(asked) == 0 {
		return rows, nil
	}
	tx, err := e.Executor.Begin(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // River words it
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // Nothing is left of it after the commit.
	var now time.Time
	var own []int64
	if err := tx.QueryRow(ctx, e.driver.jobs.Names.Render(ownJobsSQL), asked, e.driver.client).Scan(&now, &own); err != nil {
		return nil, fmt.Errorf("look which jobs are this worker's: %w", err)
	}
	others, err := tx.JobSetStateIfRunningMany(ctx, narrow(params, own, time.Now().Round(0).Sub(now)))
	if err != nil {
		return nil, err //nolint:wrapcheck // River words it
	}
	return append(rows, others...), tx.Commit(ctx) //nolint:wrapcheck // River words it
}

// narrow leaves those of the jobs, with their times put back by as much as this machine's clock is ahead.
func narrow(params *riverdriver.JobSetStateIfRunningManyParams, ids []int64, ahead time.Duration) *riverdriver.JobSetStateIfRunningManyParams {
	left := &riverdriver.JobSetStateIfRunningManyParams{Now: params.Now, Schema: params.Schema}
	for i, id := range params.ID {
		if !slices.Contains(ids, id) {
			continue
		}
		at := params.ScheduledAt[i]
		if at != nil {
			at = new(at.Add(-ahead))
		}
		left.ID, left.State, left.Attempt = append(left.ID, id), append(left.State, params.State[i]), append(left.Attempt, params.Attempt[i])
		left.ErrData, left.FinalizedAt = append(left.ErrData, params.ErrData[i]), append(left.FinalizedAt, params.FinalizedAt[i])
		left.MetadataDoMerge = append(left.MetadataDoMerge, params.MetadataDoMerge[i])
		left.MetadataUpdates, left.ScheduledAt = append(left.MetadataUpdates, params.MetadataUpdates[i]), append(left.ScheduledAt, at)
	}
	return left
}
