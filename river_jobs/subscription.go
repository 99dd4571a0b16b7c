package riverjobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/jobrun"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/cleanup"
	"sexton/internal/migrate"
	"sexton/internal/problem"
	"sexton/internal/render"
	"sexton/triggers"
)

const (
	// busyRetry is the pause if another process holds the lease. failedRetry is the pause
	// after a failed pass.
	busyRetry   = time.Second
	failedRetry = 5 * time.Second
	// fetchTimeout limits the time that a subscription waits for its job to be fetched.
	// The subscription then queries for due rows again, because the queue may be paused.
	fetchTimeout = 5 * time.Second
	// watchFirst and watchLongest are the first and the longest pause between two queries
	// for the state of a job. The state is also read when this process has finished the
	// job.
	watchFirst   = 25 * time.Millisecond
	watchLongest = 100 * time.Millisecond
)

// Kinds returns the enabled kinds for the table of kinds, which the SQL function enqueue
// reads.
func Kinds(c *config.Config) []migrate.Kind {
	return render.Each(Jobs(c), func(job Job) migrate.Kind {
		kind := migrate.Kind{
			Kind: job.Kind, Queue: job.Queue, Cron: job.Schedule != "", MaxAttempts: job.MaxAttempts,
			Args: job.Args, Defaults: job.Defaults, Row: job.Row,
		}
		if _, several := job.Args["database"]; several {
			kind.Databases = job.Databases
		}
		return kind
	})
}

// enqueueLockTimeout limits the wait for another open transaction that has enqueued the
// same job. Any role that may enqueue can leave such a transaction open.
const enqueueLockTimeout = "100ms"

// Enqueue inserts a job, or finds an equal job that has not finished, and returns its ID.
// If it runs in a transaction, that transaction must be at READ COMMITTED.
func Enqueue(ctx context.Context, on listen.Querier, db database.Database, kind string, args any,
	runAt *time.Time,
) (int64, error) {
	encoded, err := json.Marshal(args)
	if err != nil {
		return 0, fmt.Errorf("encode arguments of %s: %w", kind, err)
	}
	const sql = `WITH bounded AS MATERIALIZED (SELECT pg_catalog.set_config('lock_timeout', '` + enqueueLockTimeout + `', true))
		SELECT "sexton".enqueue($1, $2, $3) FROM bounded`
	var id int64
	err = on.QueryRow(ctx, db.Names.Render(sql), kind, string(encoded), runAt).Scan(&id)
	// The SQL function enqueue itself raises 40001, so only a lock timeout counts here.
	if batch.Judge(err).Verdict == batch.LockTimeout {
		err = fmt.Errorf("another open transaction has enqueued the same job: %w", err)
	}
	return id, problem.Doing(err, "enqueue %s", kind)
}

// Subscriptions returns the subscriptions of the enabled kinds, by database and kind, and
// one listener per database. The listener of the jobs database also serves River. The
// subscription of the loose foreign keys finds no due rows until Bindings.SetParents was
// called.
func Subscriptions(deps Deps) (subscriptions []*listen.Subscription, listeners []*listen.Listener) {
	for _, db := range deps.Databases {
		// doctor finds the worker's role by the application_name of this session.
		direct := db.Direct.Copy()
		direct.RuntimeParams["application_name"] += " (worker)"
		listener := &listen.Listener{
			Database: db.Name, Conn: direct, Pool: db.Async(), Sessions: db.Sessions,
			Logger: deps.Logger,
		}
		before := len(subscriptions)
		for _, job := range Jobs(deps.Config) {
			if !job.Inserted() && slices.Contains(job.Databases, db.Name) {
				subscriptions = append(subscriptions, job.Subscription(deps, db))
			}
		}
		listener.Add(subscriptions[before:]...)
		if db.Name == deps.jobsDB().Name || len(subscriptions) > before {
			listeners = append(listeners, listener)
		}
	}
	return subscriptions, listeners
}

// runJob ensures that a job exists and, if wait is true, waits for its end. If the work
// could not be done now, runJob returns the time to wait. on should be the subscription's
// own connection, which has the pass's prepared statements.
func runJob(ctx context.Context, deps Deps, on dbsqlc.DBTX, job Job, args any,
	wait bool,
) (time.Duration, error) {
	db := deps.jobsDB()
	id, err := Enqueue(ctx, on, db, job.Kind, args, nil)
	if batch.Judge(err).Lock() {
		id, err = enqueueSecond(ctx, on, db, job, args)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows): // Another worker has inserted a second job.
		return busyRetry, nil
	case err != nil:
		return 0, err
	}
	if !wait {
		return 0, nil
	}
	ended, forget := deps.Bindings.ends.watch(id)
	defer forget()
	began := time.Now()
	for pause := watchFirst; ; pause = min(2*pause, watchLongest) {
		waiting := time.NewTimer(pause)
		select {
		case <-ended:
			ended = nil
		case <-waiting.C:
		case <-ctx.Done():
		}
		waiting.Stop()
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		job, err := db.Names.Queries(on).JobState(ctx, id)
		switch state := rivertype.JobState(job.State); {
		case errors.Is(err, pgx.ErrNoRows): // River has deleted the finished job.
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("read job %d: %w", id, err)
		case state == rivertype.JobStateCompleted && job.Outcome == string(jobrun.Skipped):
			return busyRetry, nil
		case state == rivertype.JobStateCompleted:
			return 0, nil
		case state == rivertype.JobStateDiscarded, state == rivertype.JobStateCancelled:
			return failedRetry, nil
		case state != rivertype.JobStateRunning && time.Since(began) > fetchTimeout:
			return busyRetry, nil
		}
	}
}

const enqueueSecondSQL = `
INSERT INTO "sexton".river_job AS job (args, kind, max_attempts, queue, scheduled_at, state, tags, unique_key, unique_states)
VALUES ($2::pg_catalog.jsonb, $1::pg_catalog.text, $3::pg_catalog.int2, $4::pg_catalog.text, pg_catalog.now(), 'available', '{}',
    $5::pg_catalog.bytea, B'11110001')
ON CONFLICT (unique_key)
    WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND "sexton".river_job_state_in_bitmask(unique_states, state)
DO NOTHING
RETURNING job.id, pg_catalog.pg_notify($6, pg_catalog.format('{"queue": %s}', pg_catalog.to_json(job.queue)))`

// enqueueSecond inserts a second job if an open transaction has enqueued the first one,
// so that no work waits for that transaction. There is at most one second job.
func enqueueSecond(ctx context.Context, on dbsqlc.DBTX, db database.Database, job Job, args any) (id int64, err error) {
	encoded, err := json.Marshal(args)
	if err != nil {
		return 0, fmt.Errorf("encode arguments of %s: %w", job.Kind, err)
	}
	key := secondKey(uniqueKey(job.Kind, encoded))
	err = on.QueryRow(ctx, db.Names.Render(enqueueSecondSQL), job.Kind, string(encoded), job.MaxAttempts, job.Queue,
		key, insertedTopic()).Scan(&id, nil)
	return id, problem.Doing(err, "enqueue a second job of %s", job.Kind)
}

// uniqueKey returns the unique key of a job, as River and "sexton".enqueue compute it.
func uniqueKey(kind string, encoded []byte) []byte {
	sum := sha256.Sum256([]byte("&kind=" + kind + "&args=" + string(encoded)))
	return sum[:]
}

// secondKey returns the unique key of the second job. "sexton".enqueue never uses this
// key.
func secondKey(key []byte) []byte {
	sum := sha256.Sum256(append(slices.Clip(key), " beside"...))
	return sum[:]
}

// isSecond reports whether a job was inserted as a second job.
func isSecond(job *rivertype.JobRow, args river.JobArgs) bool {
	encoded, err := json.Marshal(args)
	return err == nil && bytes.Equal(job.UniqueKey, secondKey(uniqueKey(job.Kind, encoded)))
}

// ends contains the jobs, by ID, for which subscriptions of this process wait.
type ends struct{ waited sync.Map }

// watch returns a channel that is closed when this process finishes the job. If the job
// has finished before the call, only the job's row shows its end.
func (e *ends) watch(id int64) (ended <-chan struct{}, forget func()) {
	c := make(chan struct{})
	e.waited.Store(id, c)
	return c, func() { e.waited.Delete(id) }
}

func (e *ends) end(id int64) {
	if c, watched := e.waited.LoadAndDelete(id); watched {
		close(c.(chan struct{})) //nolint:forcetypeassert // no others are stored
	}
}

// tickSpentSQL is true if the last pass of kind $1 for database $2 reached its limits
// after the last tick.
const tickSpentSQL = `coalesce((SELECT (run.stats ->> 'over_limit'::pg_catalog.text)::boolean AND ` + inTickSQL +
	passesSQL + lastSQL + `), false)`

const (
	inTickSQL = `run.ended_at > (
            SELECT schedule.last_tick FROM "sexton".schedules AS schedule WHERE schedule.kind = $1 AND schedule.database = $2
        )`

	passesSQL = `
        FROM "sexton".runs AS run
        WHERE (run.kind, run.database) >= ($1, $2)
          AND (run.kind, run.database) <= ($1, $2)
          AND run.outcome IN ('done', 'over_limit', 'failed')`

	lastSQL = `
        ORDER BY run.kind, run.database, run.started_at DESC, run.id DESC
        LIMIT 1`
)

// TickSpent reports whether a kind has reached its limits for the named database since
// the last tick.
func TickSpent(ctx context.Context, jobs database.Database, kind, name string) (bool, error) {
	var spent bool
	err := jobs.Async().QueryRow(ctx, jobs.Names.Render("SELECT "+tickSpentSQL), kind, name).Scan(&spent)
	return spent, problem.Doing(err, "read the limits of %s", kind)
}

// pausedSQL is true if the queue of kind $1 is paused.
const pausedSQL = `EXISTS (SELECT FROM "sexton".river_queue AS queue WHERE queue.name = $1 AND queue.paused_at IS NOT NULL)`

// blockedSQL is true if no pass of kind $1 for database $2 may begin now.
const blockedSQL = pausedSQL + ` OR ` + tickSpentSQL

// dueBy returns a predicate of two SQL expressions. due is true if rows are due, and next
// is the number of seconds until more rows fall due. Their parameters are args. The
// predicate reports no due row while the queue is paused.
func dueBy[T river.JobArgs](what, due, next string, args ...any) predicate {
	var of T
	args = append(slices.Clip(args), of.Kind())
	kind := fmt.Sprint("$", len(args))
	return func(ctx context.Context, deps Deps, on listen.Querier, db database.Database, _ bool) (found listen.Due,
		err error,
	) {
		var seconds float64
		paused, jobs := strings.ReplaceAll(pausedSQL, "$1", kind), deps.jobsDB()
		if db.Name != jobs.Name { // The queues are in the jobs database.
			paused = kind + "::pg_catalog.text IS NULL"
		}
		sql := "SELECT " + due + " AND NOT " + paused + ", " + next
		if err := on.QueryRow(ctx, db.Names.Render(sql), args...).Scan(&found.Now, &seconds); err != nil {
			return listen.Due{}, fmt.Errorf("search for due %s: %w", what, err)
		}
		if found.Now && db.Name != jobs.Name {
			err := jobs.Async().QueryRow(ctx, jobs.Names.Render("SELECT NOT "+pausedSQL), of.Kind()).Scan(&found.Now)
			if err != nil {
				return listen.Due{}, fmt.Errorf("read whether %s is paused: %w", of.Kind(), err)
			}
		}
		found.In = max(0, time.Duration(seconds*float64(time.Second)))
		return found, nil
	}
}

// looseForeignKeysDue is the predicate of the loose foreign keys.
func looseForeignKeysDue(ctx context.Context, deps Deps, on listen.Querier, db database.Database,
	_ bool,
) (listen.Due, error) {
	return deps.cleanup().Due(ctx, on, db, blockedSQL)
}

// cleanup returns the dependencies of passes and predicates of the loose foreign keys.
func (d Deps) cleanup() *cleanup.Work {
	return &cleanup.Work{
		Config: d.Config, Databases: d.Databases, Jobs: d.jobsDB(), Definitions: d.Definitions, Logger: d.Logger,
		Memory: d.Bindings.memory(), Servers: &d.Bindings.servers, Held: d.Bindings,
		Track: func(db database.Database, parents []*loosefk.Parent) (triggers.Config, []triggers.Parent) {
			return Tracking(d.Config, db, map[string][]*loosefk.Parent{db.Name: parents})
		},
	}
}
