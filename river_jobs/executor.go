package riverjobs

import (
	"context"
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
	return transaction{tx, e.driver}, nil
}

type transaction struct {
	riverdriver.ExecutorTx

	driver *driver
}

// JobInsertFastMany inserts ticks. Each is due by now: its time of the worker's clock may be an hour ahead, and keep out every other job of its kind.
func (t transaction) JobInsertFastMany(ctx context.Context, params *riverdriver.JobInsertFastManyParams) ([]*riverdriver.JobInsertFastResult, error) {
	if err := t.Exec(ctx, "SET LOCAL lock_timeout = '"+tickLock+"'"); err != nil {
		return nil, err //nolint:wrapcheck // River words it
	}
	return t.ExecutorTx.JobInsertFastMany(ctx, dueByServer(params, func(*time.Time) *time.Time { return serversNow() })) //nolint:wrapcheck // River words it
}

// UnwrapExecutor is for insertions in transactions of ours.
func (d *driver) UnwrapExecutor(tx pgx.Tx) riverdriver.ExecutorTx {
	return inserter{d.Driver.UnwrapExecutor(tx), d}
}

type inserter struct {
	riverdriver.ExecutorTx

	driver *driver
}

func (i inserter) JobInsertFastMany(ctx context.Context, params *riverdriver.JobInsertFastManyParams) ([]*riverdriver.JobInsertFastResult, error) {
	return i.ExecutorTx.JobInsertFastMany(ctx, dueByServer(params, func(at *time.Time) *time.Time { //nolint:wrapcheck // River words it
		if at == nil {
			return serversNow()
		}
		return i.driver.byServer(at)
	}))
}

// serversNow stands for now() in River's insertion.
func serversNow() *time.Time { return new(time.Time) }

// dueByServer returns the jobs with times by the server's clock. The parameters are River's own, and may be used again.
func dueByServer(params *riverdriver.JobInsertFastManyParams, correct func(*time.Time) *time.Time) *riverdriver.JobInsertFastManyParams {
	corrected := *params
	corrected.Jobs = make([]*riverdriver.JobInsertFastParams, len(params.Jobs))
	for i, job := range params.Jobs {
		due := *job
		due.ScheduledAt = correct(job.ScheduledAt)
		corrected.Jobs[i] = &due
	}
	return &corrected
}

func (t transaction) JobSchedule(ctx context.Context, params *riverdriver.JobScheduleParams) ([]*riverdriver.JobScheduleResult, error) {
	corrected := *params
	corrected.Now = t.driver.byServer(params.Now)
	return t.ExecutorTx.JobSchedule(ctx, &corrected) //nolint:wrapcheck // River words it
}

func (e executor) JobSetStateIfRunningMany(ctx context.Context, params *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	corrected := *params
	corrected.ScheduledAt, corrected.FinalizedAt = e.driver.allByServer(params.ScheduledAt), e.driver.allByServer(params.FinalizedAt)
	return e.Executor.JobSetStateIfRunningMany(ctx, &corrected) //nolint:wrapcheck // River words it
}

// sameClock is the difference that a round trip may make between two equal clocks.
const sameClock = time.Second

// byServer is a time of this machine's clock by that of the server.
func (d *driver) byServer(at *time.Time) *time.Time {
	ahead := time.Duration(d.ahead.Load())
	if at == nil || ahead.Abs() < sameClock {
		return at
	}
	corrected := at.Add(-ahead)
	return &corrected
}

func (d *driver) allByServer(times []*time.Time) []*time.Time {
	corrected := make([]*time.Time, len(times))
	for i, at := range times {
		corrected[i] = d.byServer(at)
	}
	return corrected
}
