package riverjobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// These constants are River's notification topics and its name for all queues.
const (
	insertTopic     = "river_insert"
	controlTopic    = "river_control"
	leadershipTopic = "river_leadership"
	allQueues       = "*"
)

// driver is River's driver with a listener that accepts only notifications of inserted
// jobs. Every role that may connect may notify, so a forged notification could pause all
// workers, cancel jobs, or make the leader resign. The driver therefore reads pauses and
// cancellations from River's tables, which need a grant, and passes them to River as
// notifications. If the table has no leader, as after a clean stop, the driver notifies
// River that the leader has resigned. River would otherwise check only every 5 s.
type driver struct {
	*riverpgxv5.Driver

	jobs database.Database
	// client is the ID of River's client. River stores the ID in the rows of its running
	// jobs.
	client string
	log    *slog.Logger
	// ticker records the ticks of inserted jobs.
	ticker *ticker
	// params are the parameters of ProducerQueues. They contain the queues of kinds with
	// definitions, the keys of their leases, and the digests of the loaded definitions. A
	// worker fetches no job of such a queue while other definitions are installed, so
	// that a worker with the installed definitions gets the job.
	params dbsqlc.ProducerQueuesParams
	// ended holds the rows, by ID, of jobs that have completed themselves and that River
	// will complete later.
	ended sync.Map
	// inserted is the queue of notifications of inserted jobs.
	inserted chan string
	// outdatedLogged is the time of the last log line about other installed definitions,
	// by queue.
	outdatedLogged map[string]time.Time
}

func (d *driver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{Listener: d.Driver.GetListener(params), driver: d}
}

// setGenerations adds the queues, lease keys and digests of the loaded definitions to
// params.
func (d *driver) setGenerations(generations []Generation) {
	d.outdatedLogged = map[string]time.Time{}
	for _, g := range generations {
		for _, queue := range g.Kinds {
			for _, key := range g.Keys {
				d.params.OwnQueues, d.params.OwnKeys = append(d.params.OwnQueues, queue), append(d.params.OwnKeys, key)
				d.params.OwnDigests = append(d.params.OwnDigests, g.Digest)
			}
		}
	}
}

// logOutdated logs, at most once a minute, that this worker does not fetch jobs of a
// queue because other definitions are installed. It also logs when the worker fetches
// these jobs again.
func (d *driver) logOutdated(ctx context.Context, queue string, outdated bool) {
	logged, known := d.outdatedLogged[queue]
	switch {
	case outdated && time.Since(logged) >= time.Minute:
		d.outdatedLogged[queue] = time.Now()
		d.log.ErrorContext(ctx, "other_definitions_installed", "kind", queue, "database",
			d.jobs.Name,
			"error", "restart this worker with the installed definitions, or run `sexton triggers install` with its own")
	case !outdated && known:
		delete(d.outdatedLogged, queue)
		d.log.InfoContext(ctx, "own_definitions_installed", "kind", queue,
			"database", d.jobs.Name)
	}
}

// GetExecutor returns an executor that limits the lock waits of River's own insertions of
// ticks. It also takes the times of jobs from the server's clock. River takes them from
// the worker's clock. If that clock is an hour fast, each failed or snoozed job would be
// delayed by an hour.
func (d *driver) GetExecutor() riverdriver.Executor { return executor{d.Driver.GetExecutor(), d} }

type executor struct {
	riverdriver.Executor

	driver *driver
}

func (e executor) Begin(ctx context.Context) (riverdriver.ExecutorTx, error) {
	tx, err := e.Executor.Begin(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // River adds the context
	}
	return transaction{inserter{tx, e.driver}, e.driver.ticker}, nil
}

// transaction is a transaction that River has begun. It records the ticks of the jobs
// that it inserts.
type transaction struct {
	inserter

	ticker *ticker
}

// JobInsertFastMany inserts the jobs of ticks that fall due together. If another open
// transaction has enqueued one of the jobs, JobInsertFastMany waits up to
// enqueueLockTimeout and then inserts that job as a second job.
func (t transaction) JobInsertFastMany(
	ctx context.Context, params *riverdriver.JobInsertFastManyParams,
) (results []*riverdriver.JobInsertFastResult, _ error) {
	for _, job := range params.Jobs {
		inserted, err := t.insert(ctx, &riverdriver.JobInsertFastManyParams{
			Schema: params.Schema,
			Jobs:   []*riverdriver.JobInsertFastParams{job},
		})
		if err != nil {
			return nil, err
		}
		results = append(results, inserted...)
	}
	return results, t.ticker.record(ctx, t.ExecutorTx, params.Jobs)
}

func (t transaction) insert(ctx context.Context,
	one *riverdriver.JobInsertFastManyParams,
) ([]*riverdriver.JobInsertFastResult, error) {
	if err := t.Exec(ctx, "SET LOCAL lock_timeout = '"+enqueueLockTimeout+"'; SAVEPOINT before_insert"); err != nil {
		return nil, err //nolint:wrapcheck // River adds the context
	}
	results, err := t.inserter.JobInsertFastMany(ctx, one)
	if !batch.Judge(err).Lock() {
		return results, err
	}
	if err := t.Exec(ctx, "ROLLBACK TO SAVEPOINT before_insert"); err != nil {
		return nil, err //nolint:wrapcheck // River adds the context
	}
	other := *one.Jobs[0]
	other.UniqueKey = secondKey(other.UniqueKey)
	return t.inserter.JobInsertFastMany(ctx, &riverdriver.JobInsertFastManyParams{
		Schema: one.Schema,
		Jobs:   []*riverdriver.JobInsertFastParams{&other},
	})
}

// JobSchedule makes jobs available that are due by the server's clock. River's own query
// waits for locked rows, so one open transaction that has changed the time of a job would
// delay all jobs. The unique keys exclude equal jobs, so JobSchedule need not discard
// any.
func (t transaction) JobSchedule(ctx context.Context,
	params *riverdriver.JobScheduleParams,
) (scheduled []*riverdriver.JobScheduleResult, _ error) {
	due, err := t.driver.jobs.Names.Queries(t.driver.UnwrapTx(t.ExecutorTx)).JobsSchedule(ctx, int32(params.Max))
	for _, job := range due { // River uses only these fields.
		scheduled = append(scheduled, &riverdriver.JobScheduleResult{
			Job:               rivertype.JobRow{Queue: job.Queue},
			ConflictDiscarded: job.Discarded,
		})
	}
	return scheduled, problem.Doing(err, "make jobs available")
}

// UnwrapExecutor returns an executor for insertions in Sexton's transactions.
func (d *driver) UnwrapExecutor(tx pgx.Tx) riverdriver.ExecutorTx {
	return inserter{d.Driver.UnwrapExecutor(tx), d}
}

// inserter inserts jobs that are due immediately by the server's clock. If the worker's
// clock were used and is an hour fast, the job would be delayed by an hour, and
// uniqueness would reject every equal job until then.
type inserter struct {
	riverdriver.ExecutorTx

	driver *driver
}

// JobInsertFastMany inserts jobs with the server's now() as due time. River's query uses
// now() for a zero time. JobInsertFastMany copies params, because River may use them
// again.
func (i inserter) JobInsertFastMany(ctx context.Context,
	params *riverdriver.JobInsertFastManyParams,
) ([]*riverdriver.JobInsertFastResult, error) {
	corrected := *params
	corrected.Jobs = make([]*riverdriver.JobInsertFastParams, len(params.Jobs))
	for n, job := range params.Jobs {
		due := *job
		due.ScheduledAt = new(time.Time)
		corrected.Jobs[n] = &due
	}
	return i.ExecutorTx.JobInsertFastMany(ctx, &corrected) //nolint:wrapcheck // River adds the context
}

// JobSetStateIfRunningMany completes jobs in one of Sexton's transactions and stores
// their rows in ended.
func (i inserter) JobSetStateIfRunningMany(ctx context.Context,
	params *riverdriver.JobSetStateIfRunningManyParams,
) ([]*rivertype.JobRow, error) {
	rows, err := i.ExecutorTx.JobSetStateIfRunningMany(ctx, params)
	for _, row := range rows {
		i.driver.ended.Store(row.ID, row)
	}
	return rows, err //nolint:wrapcheck // River adds the context
}

// ownJobsSQL locks the jobs $1 that the client $2 still runs, and returns the server's
// time.
const ownJobsSQL = `WITH own AS (
    SELECT job.id FROM "sexton".river_job AS job
    WHERE job.id = ANY ($1::bigint[]) AND job.state::pg_catalog.text = 'running'
        AND job.attempted_by[pg_catalog.array_upper(job.attempted_by, 1)] = $2
    FOR UPDATE
) SELECT pg_catalog.clock_timestamp(), coalesce(pg_catalog.array_agg(own.id), '{}') FROM own`

// JobSetStateIfRunningMany stores that jobs have failed or were snoozed, with times of
// the server's clock. River checks only the IDs of the jobs. A job that was taken from
// this worker runs on another worker, and its row must not change. For jobs that have
// completed themselves, JobSetStateIfRunningMany only returns their rows.
func (e executor) JobSetStateIfRunningMany(ctx context.Context,
	params *riverdriver.JobSetStateIfRunningManyParams,
) (rows []*rivertype.JobRow, _ error) {
	var failed []int64
	for i, id := range params.ID {
		row, ended := e.driver.ended.LoadAndDelete(id)
		switch {
		case params.State[i] != rivertype.JobStateCompleted:
			failed = append(failed, id)
		case ended:
			rows = append(rows, row.(*rivertype.JobRow)) //nolint:forcetypeassert // no others are stored
		}
	}
	if len(failed) == 0 {
		return rows, nil
	}
	tx, err := e.Executor.Begin(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // River adds the context
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // Rollback has no effect after the commit.
	var now time.Time
	var own []int64
	if err := tx.QueryRow(ctx, e.driver.jobs.Names.Render(ownJobsSQL), failed, e.driver.client).Scan(&now,
		&own); err != nil {
		return nil, fmt.Errorf("lock this worker's jobs: %w", err)
	}
	changed, err := tx.JobSetStateIfRunningMany(ctx, selectJobs(params, own, now))
	if err != nil {
		return nil, err //nolint:wrapcheck // River adds the context
	}
	return append(rows, changed...), tx.Commit(ctx) //nolint:wrapcheck // River adds the context
}

// selectJobs returns the parameters for the jobs with the given IDs. The new due times
// are as far from now, the server's time, as River's due times are from the worker's
// time. River's times include the monotonic clock, so a change of the worker's clock has
// no effect.
func selectJobs(params *riverdriver.JobSetStateIfRunningManyParams, ids []int64,
	now time.Time,
) *riverdriver.JobSetStateIfRunningManyParams {
	selected := &riverdriver.JobSetStateIfRunningManyParams{Now: params.Now, Schema: params.Schema}
	for i, id := range params.ID {
		if !slices.Contains(ids, id) {
			continue
		}
		dueTime := params.ScheduledAt[i]
		if dueTime != nil {
			dueTime = new(now.Add(time.Until(*dueTime)))
		}
		selected.ID, selected.State = append(selected.ID, id), append(selected.State, params.State[i])
		selected.Attempt = append(selected.Attempt, params.Attempt[i])
		selected.ErrData, selected.FinalizedAt = append(selected.ErrData, params.ErrData[i]),
			append(selected.FinalizedAt, params.FinalizedAt[i])
		selected.MetadataDoMerge = append(selected.MetadataDoMerge, params.MetadataDoMerge[i])
		selected.MetadataUpdates, selected.ScheduledAt = append(selected.MetadataUpdates, params.MetadataUpdates[i]),
			append(selected.ScheduledAt, dueTime)
	}
	return selected
}

// listener is a River listener without a connection. It gets notifications of inserted
// jobs from the listener of the jobs database. River uses it in one goroutine at a time.
// It reports no lost connection, because River would wait longer after each loss, up to a
// minute.
type listener struct {
	riverdriver.Listener

	driver *driver
	// pending are notifications of the last query that River has not read yet. queried is
	// the time of that query.
	pending []*riverdriver.Notification
	queried time.Time
}

// queuesInterval is the time between two calls of readQueues, and queuesTimeout is the
// timeout of a call.
const queuesInterval, queuesTimeout = 2 * time.Second, 5 * time.Second

func (*listener) Connect(context.Context) error { return nil }

func (*listener) Listen(context.Context, string) error { return nil }

func (*listener) Unlisten(context.Context, string) error { return nil }

func (*listener) Ping(context.Context) error { return nil }

func (*listener) Close(context.Context) error { return nil }

// WaitForNotification returns the next notification of an inserted job or of the state of
// a queue. River cancels the call every 5 s and calls again.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	due := time.NewTimer(time.Until(l.queried.Add(queuesInterval)))
	defer due.Stop()
	for len(l.pending) == 0 {
		select {
		case <-due.C:
			l.pending = l.driver.readQueues(ctx)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			l.queried = time.Now()
			due.Reset(queuesInterval)
		case payload := <-l.driver.inserted:
			return &riverdriver.Notification{Topic: insertTopic, Payload: payload}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	next := l.pending[0]
	l.pending = l.pending[1:]
	return next, nil
}

// insertedTopic returns the Postgres channel of River's notifications of inserted jobs.
func insertedTopic() string { return pgcatalog.Schema + "." + insertTopic }

// mostInserted is the number of notifications that can wait for River. River's own buffer
// has the same size.
const mostInserted = 1000

// receive adds a notification of an inserted job to the queue. If the queue is full, the
// next call of readQueues finds the job.
func (d *driver) receive(payload string) {
	select {
	case d.inserted <- payload:
	default:
	}
}

// readQueues returns notifications for all queues, read from River's tables. Because of
// these notifications, River's own poll can be rare. They contain:
//
//   - the state of each queue, even if unchanged, because a queue that starts now would
//     miss the change
//   - queues with jobs to fetch, whose notification was lost or which were snoozed for
//     less than the interval of River's scheduler
//   - running jobs that must be canceled
func (d *driver) readQueues(ctx context.Context) []*riverdriver.Notification {
	ctx, cancel := context.WithTimeout(ctx, queuesTimeout)
	defer cancel()
	queues, err := d.jobs.AsyncQueries().ProducerQueues(ctx, d.params)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			d.log.WarnContext(ctx, "queues_not_read", "error", err)
		}
		return nil
	}
	return d.notifications(ctx, queues)
}

// notifications converts the states of queues to notifications for River.
func (d *driver) notifications(ctx context.Context,
	queues []dbsqlc.ProducerQueuesRow,
) (all []*riverdriver.Notification) {
	anyPaused, hasLeader := false, true
	for _, q := range queues {
		if q.Waiting && !q.Paused && !q.Outdated {
			all = append(all, &riverdriver.Notification{
				Topic:   insertTopic,
				Payload: fmt.Sprintf(`{"queue":%q}`, q.Name),
			})
		}
		for _, id := range q.Cancelled {
			all = append(all, &riverdriver.Notification{
				Topic:   controlTopic,
				Payload: fmt.Sprintf(`{"action":"cancel","queue":%q,"job_id":%d}`, q.Name, id),
			})
		}
		anyPaused, hasLeader = anyPaused || q.Paused || q.Outdated, q.Led
		d.logOutdated(ctx, q.Name, q.Outdated)
	}
	if !anyPaused {
		all = append(all, control(allQueues, false))
	}
	for _, q := range queues {
		if anyPaused {
			all = append(all, control(q.Name, q.Paused || q.Outdated))
		}
	}
	if !hasLeader {
		all = append(all, &riverdriver.Notification{
			Topic:   leadershipTopic,
			Payload: `{"action":"resigned","leader_id":""}`,
		})
	}
	return all
}

// control returns River's notification that a queue is paused or resumed.
func control(queue string, paused bool) *riverdriver.Notification {
	action := "resume"
	if paused {
		action = "pause"
	}
	return &riverdriver.Notification{
		Topic:   controlTopic,
		Payload: fmt.Sprintf(`{"action":%q,"queue":%q}`, action, queue),
	}
}
