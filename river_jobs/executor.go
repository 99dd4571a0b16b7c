package riverjobs

import (
	"context"
	"time"

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

func (t transaction) JobInsertFastMany(ctx context.Context, params *riverdriver.JobInsertFastManyParams) ([]*riverdriver.JobInsertFastResult, error) {
	if err := t.Exec(ctx, "SET LOCAL lock_timeout = '"+tickLock+"'"); err != nil {
		return nil, err //nolint:wrapcheck // River words it
	}
	return t.ExecutorTx.JobInsertFastMany(ctx, params) //nolint:wrapcheck // River words it
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
