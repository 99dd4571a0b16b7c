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

// River's topics, and the name that stands for all queues.
const (
	insertTopic     = "river_insert"
	controlTopic    = "river_control"
	leadershipTopic = "river_leadership"
	allQueues       = "*"
)

// driver is River's, except that its listener hears of inserted jobs alone. Every role
// that may connect may notify: one made-up notification paused all workers for ever,
// others cancelled jobs or had the leader resign. What River believes comes from its
// tables, which take a grant: pauses and jobs whose cancelling was asked for are read
// from there and told in the place of the notification. Where the table has no leader, as
// after a clean stop, River is told that the leader has resigned; it would look by itself
// every 5 s.
type driver struct {
	*riverpgxv5.Driver

	jobs database.Database
	// client is the ID of River's client, as jobs that it works on have it.
	client string
	log    *slog.Logger
	// ticker records the ticks whose jobs are inserted.
	ticker *ticker
	// look asks for the queues. Its own ones are those whose jobs work with definitions,
	// with the keys of their leases and the digests: a worker fetches no job of a queue
	// for which others are installed, as it could only turn it away from a worker that
	// has them.
	look dbsqlc.QueueLooksParams
	// ended are the rows, by ID, of jobs that have ended themselves, in a transaction of
	// ours, and that River is still to end.
	ended sync.Map
	// inserted holds what the ear has heard of inserted jobs.
	inserted chan string
	// said is when it was last logged of a queue.
	said map[string]time.Time
}

func (d *driver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{Listener: d.Driver.GetListener(params), driver: d}
}

// setGenerations fills in the own queues.
func (d *driver) setGenerations(generations []Generation) {
	d.said = map[string]time.Time{}
	for _, g := range generations {
		for _, queue := range g.Kinds {
			for _, key := range g.Keys {
				d.look.OwnQueues, d.look.OwnKeys = append(d.look.OwnQueues, queue), append(d.look.OwnKeys, key)
				d.look.OwnDigests = append(d.look.OwnDigests, g.Digest)
			}
		}
	}
}

// noteOutdated says once a minute that a queue is left to workers with other definitions,
// and that it no longer is.
func (d *driver) noteOutdated(ctx context.Context, queue string, outdated bool) {
	said, known := d.said[queue]
	switch {
	case outdated && time.Since(said) >= time.Minute:
		d.said[queue] = time.Now()
		d.log.ErrorContext(ctx, "other_definitions_installed", "kind", queue, "database",
			d.jobs.Name,
			"error", "let this worker read the files that were installed, or run `sexton triggers install` with its own")
	case !outdated && known:
		delete(d.said, queue)
		d.log.InfoContext(ctx, "the installed definitions are this worker's again: the job goes on", "kind", queue,
			"database", d.jobs.Name)
	}
}

// GetExecutor bounds the lock waits of insertions in River's own transactions. Those are
// of ticks: all else is inserted in transactions of ours. And it gives jobs times by the
// server's clock, where River reckons with the worker's: one that is an hour ahead would
// put every failed or snoozed job off for that hour.
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

// JobInsertFastMany inserts the jobs of ticks that fall due together. It waits for a
// moment for another transaction that asks for one of them and has not ended. Then that
// job comes beside, and it alone: another one that waits already would be there twice.
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
	if err := t.Exec(ctx, "SET LOCAL lock_timeout = '"+askLock+"'; SAVEPOINT asked"); err != nil {
		return nil, err //nolint:wrapcheck // River words it
	}
	results, err := t.inserter.JobInsertFastMany(ctx, one)
	if !batch.Judge(err).Lock() {
		return results, err
	}
	if err := t.Exec(ctx, "ROLLBACK TO SAVEPOINT asked"); err != nil {
		return nil, err //nolint:wrapcheck // River words it
	}
	other := *one.Jobs[0]
	other.UniqueKey = besideKey(other.UniqueKey)
	return t.inserter.JobInsertFastMany(ctx, &riverdriver.JobInsertFastManyParams{
		Schema: one.Schema,
		Jobs:   []*riverdriver.JobInsertFastParams{&other},
	})
}

// JobSchedule makes jobs available whose time has come by the server's clock. River's own
// query waits for rows that are locked, and so all jobs would wait for one that a
// transaction has pulled forward which does not end. The unique keys of these jobs keep
// others out already.
func (t transaction) JobSchedule(ctx context.Context,
	params *riverdriver.JobScheduleParams,
) (scheduled []*riverdriver.JobScheduleResult, _ error) {
	due, err := t.driver.jobs.Names.Queries(t.driver.UnwrapTx(t.ExecutorTx)).JobsSchedule(ctx, int32(params.Max))
	for _, job := range due { // River asks for no more.
		scheduled = append(scheduled, &riverdriver.JobScheduleResult{
			Job:               rivertype.JobRow{Queue: job.Queue},
			ConflictDiscarded: job.Discarded,
		})
	}
	return scheduled, problem.Doing(err, "make jobs available")
}

// UnwrapExecutor is for insertions in transactions of ours.
func (d *driver) UnwrapExecutor(tx pgx.Tx) riverdriver.ExecutorTx {
	return inserter{d.Driver.UnwrapExecutor(tx), d}
}

// inserter inserts jobs that are due now: by the worker's clock that may be an hour
// ahead, and such a job keeps out every other one of its kind.
type inserter struct {
	riverdriver.ExecutorTx

	driver *driver
}

// JobInsertFastMany inserts at the server's now(), for which River's query takes a zero
// time. The parameters are River's own, and may be used again.
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
	return i.ExecutorTx.JobInsertFastMany(ctx, &corrected) //nolint:wrapcheck // River words it
}

// JobSetStateIfRunningMany ends a job in a transaction of ours, with its output.
func (i inserter) JobSetStateIfRunningMany(ctx context.Context,
	params *riverdriver.JobSetStateIfRunningManyParams,
) ([]*rivertype.JobRow, error) {
	rows, err := i.ExecutorTx.JobSetStateIfRunningMany(ctx, params)
	for _, row := range rows {
		i.driver.ended.Store(row.ID, row)
	}
	return rows, err //nolint:wrapcheck // River words it
}

// ownJobsSQL locks the jobs $1 that the client $2 works on still, and tells the server's
// time.
const ownJobsSQL = `WITH own AS (
    SELECT job.id FROM "sexton".river_job AS job
    WHERE job.id = ANY ($1::bigint[]) AND job.state::pg_catalog.text = 'running'
        AND job.attempted_by[pg_catalog.array_upper(job.attempted_by, 1)] = $2
    FOR UPDATE
) SELECT pg_catalog.clock_timestamp(), coalesce(pg_catalog.array_agg(own.id), '{}') FROM own`

// JobSetStateIfRunningMany writes that jobs failed or were snoozed, by the server's
// clock. River goes by their IDs alone: a job that was taken from this worker runs on
// another one, and its row must stay as it is. River also completes jobs that have
// completed themselves, some time later and on another connection: there is nothing left
// to write.
func (e executor) JobSetStateIfRunningMany(ctx context.Context,
	params *riverdriver.JobSetStateIfRunningManyParams,
) (rows []*rivertype.JobRow, _ error) {
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
	if err := tx.QueryRow(ctx, e.driver.jobs.Names.Render(ownJobsSQL), asked, e.driver.client).Scan(&now,
		&own); err != nil {
		return nil, fmt.Errorf("look which jobs are this worker's: %w", err)
	}
	others, err := tx.JobSetStateIfRunningMany(ctx, narrow(params, own, now))
	if err != nil {
		return nil, err //nolint:wrapcheck // River words it
	}
	return append(rows, others...), tx.Commit(ctx) //nolint:wrapcheck // River words it
}

// narrow leaves some of the jobs, due as long after now, which is the server's, as River
// has meant them to be from this moment. River's times carry the clock that runs on while
// this machine's is set.
func narrow(params *riverdriver.JobSetStateIfRunningManyParams, ids []int64,
	now time.Time,
) *riverdriver.JobSetStateIfRunningManyParams {
	left := &riverdriver.JobSetStateIfRunningManyParams{Now: params.Now, Schema: params.Schema}
	for i, id := range params.ID {
		if !slices.Contains(ids, id) {
			continue
		}
		at := params.ScheduledAt[i]
		if at != nil {
			at = new(now.Add(time.Until(*at)))
		}
		left.ID, left.State, left.Attempt = append(left.ID, id), append(left.State, params.State[i]),
			append(left.Attempt, params.Attempt[i])
		left.ErrData, left.FinalizedAt = append(left.ErrData, params.ErrData[i]),
			append(left.FinalizedAt, params.FinalizedAt[i])
		left.MetadataDoMerge = append(left.MetadataDoMerge, params.MetadataDoMerge[i])
		left.MetadataUpdates, left.ScheduledAt = append(left.MetadataUpdates, params.MetadataUpdates[i]),
			append(left.ScheduledAt, at)
	}
	return left
}

// listener has no connection of its own: the ear of the jobs database hears of inserted
// jobs. It is used by one goroutine at a time, as River's is. River never learns that a
// connection is lost: it would wait longer with each loss in the life of the process, up
// to a minute, and look for nothing meanwhile.
type listener struct {
	riverdriver.Listener

	driver *driver
	// told are notifications from the last reading of the queues that River has not taken
	// yet. read is the time of that reading.
	told []*riverdriver.Notification
	read time.Time
}

// queuesInterval is the time between two readings of the queues, queuesTimeout limits
// one.
const queuesInterval, queuesTimeout = 2 * time.Second, 5 * time.Second

func (*listener) Connect(context.Context) error { return nil }

func (*listener) Listen(context.Context, string) error { return nil }

func (*listener) Unlisten(context.Context, string) error { return nil }

func (*listener) Ping(context.Context) error { return nil }

func (*listener) Close(context.Context) error { return nil }

// WaitForNotification returns what was inserted, or whether queues are paused. River
// cancels it every 5 s and calls it again.
func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	due := time.NewTimer(time.Until(l.read.Add(queuesInterval)))
	defer due.Stop()
	for len(l.told) == 0 {
		select {
		case <-due.C:
			l.told = l.driver.readQueues(ctx)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			l.read = time.Now()
			due.Reset(queuesInterval)
		case payload := <-l.driver.inserted:
			return &riverdriver.Notification{Topic: insertTopic, Payload: payload}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	next := l.told[0]
	l.told = l.told[1:]
	return next, nil
}

// insertedTopic is the channel on which inserted jobs are told of.
func insertedTopic() string { return pgcatalog.Schema + "." + insertTopic }

// mostInserted is how much may have been heard that River has not taken yet. Its own
// buffer is as long.
const mostInserted = 1000

// hear takes in what the ear has heard of an inserted job. If there is no room for it,
// the next reading of the queues finds the job.
func (d *driver) hear(payload string) {
	select {
	case d.inserted <- payload:
	default:
	}
}

// readQueues returns the state of all queues as notifications, whether it has changed or
// not: a queue that begins just now would miss the change. They also name queues with
// jobs that wait to be fetched: their notification was lost, or they were snoozed for
// less than the interval of River's scheduler. So River itself polls rarely. And they
// name running jobs that must be cancelled.
func (d *driver) readQueues(ctx context.Context) []*riverdriver.Notification {
	ctx, cancel := context.WithTimeout(ctx, queuesTimeout)
	defer cancel()
	queues, err := d.jobs.AsyncQueries().QueueLooks(ctx, d.look)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			d.log.WarnContext(ctx, "pauses cannot be read; they stay as they were", "error", err)
		}
		return nil
	}
	return d.tell(ctx, queues)
}

func (d *driver) tell(ctx context.Context, queues []dbsqlc.QueueLooksRow) (told []*riverdriver.Notification) {
	some, led := false, true
	for _, q := range queues {
		if q.Waiting && !q.Paused && !q.Outdated {
			told = append(told, &riverdriver.Notification{
				Topic:   insertTopic,
				Payload: fmt.Sprintf(`{"queue":%q}`, q.Name),
			})
		}
		for _, id := range q.Cancelled {
			told = append(told, &riverdriver.Notification{
				Topic:   controlTopic,
				Payload: fmt.Sprintf(`{"action":"cancel","queue":%q,"job_id":%d}`, q.Name, id),
			})
		}
		some, led = some || q.Paused || q.Outdated, q.Led
		d.noteOutdated(ctx, q.Name, q.Outdated)
	}
	if !some {
		told = append(told, control(allQueues, false))
	}
	for _, q := range queues {
		if some {
			told = append(told, control(q.Name, q.Paused || q.Outdated))
		}
	}
	if !led {
		told = append(told, &riverdriver.Notification{
			Topic:   leadershipTopic,
			Payload: `{"action":"resigned","leader_id":""}`,
		})
	}
	return told
}

// control is River's own notification of a queue that is paused or resumed. The names of
// queues are those of kinds.
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
