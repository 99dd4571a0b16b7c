package riverjobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
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
	return transaction{tx}, nil
}

type transaction struct{ riverdriver.ExecutorTx }

// JobInsertFastMany inserts ticks. Each is due by now: its time of the worker's clock may be an hour ahead, and keep out every other job of its kind.
func (t transaction) JobInsertFastMany(ctx context.Context, params *riverdriver.JobInsertFastManyParams) ([]*riverdriver.JobInsertFastResult, error) {
	if err := t.Exec(ctx, "SET LOCAL lock_timeout = '"+tickLock+"'"); err != nil {
		return nil, err //nolint:wrapcheck // River words it
	}
	return t.ExecutorTx.JobInsertFastMany(ctx, dueNow(params)) //nolint:wrapcheck // River words it
}

// UnwrapExecutor is for insertions in transactions of ours, all of jobs that are due.
func (d *driver) UnwrapExecutor(tx pgx.Tx) riverdriver.ExecutorTx {
	return inserter{d.Driver.UnwrapExecutor(tx)}
}

type inserter struct{ riverdriver.ExecutorTx }

func (i inserter) JobInsertFastMany(ctx context.Context, params *riverdriver.JobInsertFastManyParams) ([]*riverdriver.JobInsertFastResult, error) {
	return i.ExecutorTx.JobInsertFastMany(ctx, dueNow(params)) //nolint:wrapcheck // River words it
}

// dueNow returns the jobs due at the server's now(), for which River's insertion takes a zero time. The parameters are River's own, and may be
// used again.
func dueNow(params *riverdriver.JobInsertFastManyParams) *riverdriver.JobInsertFastManyParams {
	corrected := *params
	corrected.Jobs = make([]*riverdriver.JobInsertFastParams, len(params.Jobs))
	for i, job := range params.Jobs {
		due := *job
		due.ScheduledAt = new(time.Time)
		corrected.Jobs[i] = &due
	}
	return &corrected
}

func (t transaction) JobSchedule(ctx context.Context, params *riverdriver.JobScheduleParams) ([]*riverdriver.JobScheduleResult, error) {
	corrected := *params
	corrected.Now = nil                              // The server's.
	return t.ExecutorTx.JobSchedule(ctx, &corrected) //nolint:wrapcheck // River words it
}

// JobSetStateIfRunningMany asks for the server's clock where a job goes on later, because it was snoozed or has failed.
func (e executor) JobSetStateIfRunningMany(ctx context.Context, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	corrected := *params
	corrected.ScheduledAt = make([]*time.Time, len(params.ScheduledAt))
	var ahead time.Duration
	asked := false
	for i, at := range params.ScheduledAt {
		if at == nil {
			continue
		}
		if !asked {
			var now time.Time
			if err := e.driver.jobs.Async().QueryRow(ctx, "SELECT pg_catalog.clock_timestamp()").Scan(&now); err != nil {
				return nil, fmt.Errorf("ask for the server's time: %w", err)
			}
			ahead, asked = time.Now().Round(0).Sub(now), true
		}
		later := at.Add(-ahead)
		corrected.ScheduledAt[i] = &later
	}
	return e.Executor.JobSetStateIfRunningMany(ctx, &corrected) //nolint:wrapcheck // River words it
}
