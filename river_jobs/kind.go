package riverjobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/listen"
	"sexton/internal/pace"
	"sexton/internal/problem"
	"sexton/triggers"
)

// kind declares one kind of jobs with arguments of type T.
type kind[T river.JobArgs] struct {
	Job

	// argsOf returns the arguments of a pass for a database. Nil means that T is empty.
	argsOf func(database string) T
	bounds func(T) bounds
	// pass does the work. The statistics count even if pass also returns an error.
	pass func(context.Context, *pass, T) (jobrun.Result, error)

	// onEnd, if set, is called after each pass, also if the pass could not begin.
	onEnd func(context.Context, *pass, jobrun.Report, error)

	// due is the predicate of a kind with a schedule. It is nil for a kind without a
	// schedule.
	due predicate
	// retryDelay, if set, returns the time for which wake-ups are ignored after a
	// failure.
	retryDelay func(ctx context.Context, deps Deps, db database.Database) (time.Duration, error)
	// startDelay, if set, returns the time for which a job is snoozed before it begins.
	startDelay func(Deps) time.Duration
}

// predicate reports whether rows of a database are due, and when the next row falls due.
// It queries on the given connection. If fresh is true, it does not use cached results.
type predicate func(ctx context.Context, deps Deps, on listen.Querier, db database.Database, fresh bool) (listen.Due,
	error)

// bounds contains the database, the lease and the timeout of a pass.
type bounds struct {
	// database is the configured name of the database. "" means the jobs database.
	database string
	// lease is the key of the lease, and ttl is its duration. Without a key, two passes
	// of one item may run at the same time.
	lease string
	ttl   time.Duration
	// timeout is the time after which River ends the job. 0 means maxJobTime. A negative
	// value means that River never ends the job.
	timeout time.Duration
	// long is true if a pass may take hours while it makes progress.
	long bool
}

// extraTime returns the time by which leases and jobs are longer if
// jobs.statement_timeout exceeds its default.
func extraTime(c *config.Config) time.Duration { return lease.Extension(c.Jobs.StatementTimeout) }

// pass is the state of one pass.
type pass struct {
	Deps

	db       database.Database
	granted  *lease.Lease
	progress jobrun.Progress
	log      *slog.Logger
	// job is nil if the pass runs outside River.
	job *rivertype.JobRow

	// later is the time for which the job is snoozed after the pass, without counting an
	// attempt.
	later time.Duration
	// pauses is the number of deferJob calls for the job.
	pauses int
	// lostConns is the number of connections that the job has lost.
	lostConns int
	// holder is the process for which the pass waits.
	holder string
}

// session acquires a connection for the pass. If durable is true, commits on it wait for
// the disk and for synchronous standbys.
func (p *pass) session(ctx context.Context, durable bool) (*batch.Session, func(), error) {
	conn, err := p.db.Pool.Acquire(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to database %s: %w", p.db.Name, err)
	}
	limits := p.timeouts()
	limits.Durable = durable
	return &batch.Session{Conn: conn.Conn(), Names: p.db.Names, Fence: p.granted, Limits: limits}, conn.Release, nil
}

// throttle returns a Throttle that makes the pass wait for replicas and locks of its
// database.
func (p *pass) throttle(session *batch.Session, duty config.Duty) pace.Throttle {
	limits := pace.ReplicaLimits{Lag: p.Config.Jobs.ReplicaLag, Bytes: int64(p.Config.Jobs.ReplicaLagBytes)}
	return pace.NewServerThrottle(p.log, &p.Bindings.servers, limits,
		pace.Target{DB: p.db, Session: session}).Throttle(duty.Fixed())
}

// progressOn returns a function that records statistics as progress of the pass. It
// records them immediately if the result of state has changed.
func progressOn[S any](p *pass, state func(S) string) func(context.Context, S) {
	last := ""
	return func(ctx context.Context, stats S) {
		current := state(stats)
		p.progress(ctx, stats, current != last)
		last = current
	}
}

// bindUnderLease binds a kind's configuration to the database and renews the lease
// meanwhile. It returns an error if the configuration does not match the database.
func bindUnderLease[T any](ctx context.Context, p *pass, kind string,
	bind func() (T, problem.List, error),
) (bound T, _ error) {
	var problems problem.List
	err := p.granted.RenewDuring(ctx, func() (err error) {
		bound, problems, err = bind()
		return err
	})
	if err == nil {
		err = p.fits(ctx, kind, p.db, problems)
	}
	return bound, err
}

// output is the result of a pass that is stored in the job's row.
type output struct {
	jobrun.Report

	Pauses int `json:"pauses,omitempty"`
	Cuts   int `json:"cuts,omitempty"`
}

// mostLostConns is the number of lost connections that do not count as attempts. If there
// are more, the job's own statements may be the cause: a statement may crash the server,
// or a pooler may close the connection each time.
const mostLostConns = 20

// newPass returns a pass of a job with the counters of the job's earlier passes.
func newPass(deps Deps, job *rivertype.JobRow) *pass {
	var before struct {
		Output output `json:"output"`
	}
	_ = json.Unmarshal(job.Metadata, &before) // Counters that are missing or invalid are 0.
	return &pass{Deps: deps, job: job, pauses: max(before.Output.Pauses, 0), lostConns: max(before.Output.Cuts, 0)}
}

// deferJob snoozes the job for a pause that grows with each call. Snoozes because of a
// stop, a lock or another process do not lengthen this pause.
func (p *pass) deferJob() {
	p.later = pauseAfter(p.pauses)
	p.pauses++
}

// snoozes returns the number of times that River has snoozed the job.
func (p *pass) snoozes() int {
	var counted struct {
		Snoozes int `json:"snoozes"`
	}
	if p.job != nil {
		_ = json.Unmarshal(p.job.Metadata, &counted) // A missing or invalid count is 0.
	}
	return max(counted.Snoozes, 0)
}

// uniqueOpts returns insert options for jobs that are unique by arguments until they
// finish. The state completed is not included, because rows that fall due later need a
// new job.
func uniqueOpts(kind string, attempts int) river.InsertOpts {
	return river.InsertOpts{Queue: kind, MaxAttempts: attempts, UniqueOpts: river.UniqueOpts{
		ByArgs: true,
		ByState: []rivertype.JobState{
			rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning,
			rivertype.JobStateRetryable, rivertype.JobStateScheduled,
		},
	}}
}

// job returns the Job of the kind, with the fields that all kinds derive in the same way.
func (k kind[T]) job(c *config.Config) Job {
	var none T
	job := k.Job
	job.Kind, job.Queue = none.Kind(), none.Kind()
	job.Schedule = string(job.Cron)
	if withOptions, ok := any(none).(river.JobArgsWithInsertOpts); ok {
		job.MaxAttempts = withOptions.InsertOpts().MaxAttempts
	}
	if job.Args == nil {
		job.Args = map[string]string{}
	}
	if job.Defaults == nil {
		job.Defaults = map[string]any{}
	}
	if job.Databases == nil {
		job.Databases = []string{c.Jobs.Database}
	}
	job.Run = k.foreground
	job.register = func(workers *river.Workers, deps Deps) { river.AddWorker(workers, &worker[T]{deps: deps, kind: k}) }
	if !job.Inserted() {
		job.ArgsOf = func(database string) river.JobArgs { return k.args(database) }
		job.LeaseKey = func(database string) string { return k.bounds(k.args(database)).lease }
		job.Subscription = k.subscription
	}
	return job
}

func (k kind[T]) args(database string) (args T) {
	if k.argsOf != nil {
		args = k.argsOf(database)
	}
	return args
}

// subscription returns the subscription that starts passes of the kind in one database.
func (k kind[T]) subscription(deps Deps, db database.Database) *listen.Subscription {
	job := k.job(deps.Config)
	key1, key2 := triggers.AwakeKey(job.Kind)
	var tables []string
	for _, wake := range job.wakesIn(db.Names.Tracked) {
		if table := (pgx.Identifier{wake.Schema, wake.Table}).Sanitize(); !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
	}
	return &listen.Subscription{
		Kind: job.Kind, Database: db.Name, Key1: key1, Key2: key2, Tables: tables,
		Due: func(ctx context.Context, on listen.Querier, fresh bool) (listen.Due, error) {
			return k.due(ctx, deps, on, db, fresh)
		},
		Work: func(ctx context.Context, on dbsqlc.DBTX, wait bool) (time.Duration, error) {
			if k.retryDelay != nil {
				if left, err := k.retryDelay(ctx, deps, db); left > 0 || err != nil {
					return left, err
				}
			}
			if jobs := deps.jobsDB(); db.Name != jobs.Name || db.Sessions != jobs.Async() {
				on = jobs.Async()
			}
			return runJob(ctx, deps, on, job, k.args(db.Name), wait)
		},
	}
}

// foreground runs a pass outside River.
func (k kind[T]) foreground(ctx context.Context, deps Deps, selected Pass) (jobrun.Report, error) {
	args := k.args(selected.Database)
	if k.due != nil {
		if served := cmp.Or(k.bounds(args).database, deps.jobsDB().Name); selected.Database != served {
			return jobrun.Report{}, fmt.Errorf("run %s: it works in the jobs database, which is %s", args.Kind(),
				served)
		}
	} else if err := json.Unmarshal(selected.Args, &args); err != nil {
		return jobrun.Report{}, fmt.Errorf("read arguments of %s: %w", args.Kind(), err)
	}
	return k.run(ctx, &pass{Deps: deps}, args)
}

// recheck checks the kind's configuration again if the last check found an error.
func (k kind[T]) recheck(ctx context.Context, p *pass, args T) error {
	if k.Check == nil || !p.Bindings.hasErrors(args.Kind(), p.db.Name) {
		return nil
	}
	found, err := k.Check(ctx, p.Config, p.db)
	return cmp.Or(err, p.fits(ctx, args.Kind(), p.db, found))
}

// run runs one pass, under a lease if the kind has one.
func (k kind[T]) run(ctx context.Context, p *pass, args T) (jobrun.Report, error) {
	limits := k.bounds(args)
	name := cmp.Or(limits.database, p.jobsDB().Name)
	var connected bool
	if p.db, connected = p.database(name); !connected {
		return jobrun.Report{}, fmt.Errorf("run %s: no database is configured under the name %q", args.Kind(), name)
	}
	p.log = p.Logger.With("kind", args.Kind(), "database", p.db.Name)
	spec := jobrun.Spec{
		Kind: args.Kind(), Database: p.db.Name, LeaseKey: limits.lease, LeaseTTL: limits.ttl, Shared: k.due == nil,
		Long: limits.long,
	}
	if limits.lease != "" {
		spec.Fences = []database.Database{p.db}
	}
	report, err := p.Runner.Do(ctx, spec, func(ctx context.Context, granted *lease.Lease,
		progress jobrun.Progress,
	) (jobrun.Result, error) {
		p.granted, p.progress = granted, progress
		if err := k.recheck(ctx, p, args); err != nil {
			return jobrun.Result{}, err
		}
		return k.pass(ctx, p, args)
	})
	report.Holder = cmp.Or(report.Holder, p.holder)
	if k.onEnd != nil {
		k.onEnd(ctx, p, report, err)
	}
	return report, err
}

// worker is the River worker for the jobs of one kind.
type worker[T river.JobArgs] struct {
	river.WorkerDefaults[T]

	deps Deps
	kind kind[T]
}

// Timeout returns the kind's timeout for the job.
func (w *worker[T]) Timeout(job *river.Job[T]) time.Duration { return w.kind.bounds(job.Args).timeout }

// Work runs one pass and finishes the job. If work is left, it inserts a successor. A
// pass does not count as an attempt if the lease is held, another session holds a lock,
// up to mostLostConns connections were lost, the process stops, or the pass defers its
// job.
func (w *worker[T]) Work(ctx context.Context, job *river.Job[T]) error {
	if w.kind.startDelay != nil {
		if wait := w.kind.startDelay(w.deps); wait > 0 {
			return river.JobSnooze(wait)
		}
	}
	stopping, cancel := w.deps.untilStopped(ctx)
	defer cancel()
	p := newPass(w.deps, job.JobRow)
	report, err := w.kind.run(stopping, p, job.Args)
	f := batch.Judge(err)
	// An expired deadline of the job also looks like a lost connection.
	lostConn := f.Verdict == batch.Fatal && database.Lost(err) && ctx.Err() == nil && stopping.Err() == nil
	if lostConn {
		p.lostConns++
	}
	kept := output{report, p.pauses, p.lostConns}
	kept.Stats = nil // The history contains the statistics, and each change of state rewrites the job's row.
	if err := river.RecordOutput(ctx, kept); err != nil {
		return fmt.Errorf("record output: %w", err)
	}
	item := w.kind.due == nil
	switch {
	case err != nil && stopping.Err() != nil && ctx.Err() == nil:
		return river.JobSnooze(0) // The process stops, and the pass has not begun.
	case p.later > 0:
		return river.JobSnooze(p.later)
	case item && (f.Lock() || lostConn && p.lostConns <= mostLostConns):
		return river.JobSnooze(pace.Backoff(1 + p.snoozes()))
	case err != nil:
		return err
	case item && report.Outcome == jobrun.Skipped && (report.Holder != "" || report.Outdated):
		return river.JobSnooze(busyRetry)
	}
	return finish(ctx, w.deps, job, func(ctx context.Context, tx pgx.Tx) (bool, error) {
		switch {
		case item:
			return report.Outcome == jobrun.OverLimit, nil
		case report.Outcome == jobrun.Skipped:
			return false, nil // The lease holder does the work, and queries for due rows at its end.
		}
		var on listen.Querier = tx
		if p.db.Name != w.deps.jobsDB().Name {
			on = p.db.Async() // This query also runs after the job's row was locked, as finish requires.
		}
		due, err := w.kind.due(ctx, w.deps, on, p.db, false)
		return due.Now, err
	})
}

// finish completes a unique job without losing concurrent inserts. River keeps a job in
// the state running for a quarter of a second after Work has returned, and skips inserts
// of an equal job until then. So the job completes itself in a transaction that first
// locks its row. The work of an earlier insert is committed, so due sees that work. A
// later insert waits for the lock and then finds the unique key free. If due returns
// true, finish inserts a successor.
func finish[T river.JobArgs](ctx context.Context, deps Deps, job *river.Job[T],
	due func(context.Context, pgx.Tx) (bool, error),
) error {
	db := deps.jobsDB()
	return pgx.BeginTxFunc(ctx, db.Async(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		client := river.ClientFromContext[pgx.Tx](ctx)
		var own bool
		const lock = `SELECT state = 'running' AND attempted_by[pg_catalog.array_upper(attempted_by, 1)] = $2, ` +
			database.GenericPlan +
			` FROM "sexton".river_job WHERE id = $1 FOR UPDATE`
		if err := tx.QueryRow(ctx, db.Names.Render(lock), job.ID, client.ID()).Scan(&own, new(string)); err != nil {
			return fmt.Errorf("lock own job: %w", err)
		}
		if !own {
			// This worker was declared dead, and another worker has the job.
			return nil
		}
		more, err := due(ctx, tx)
		if err != nil {
			return fmt.Errorf("search for due rows: %w", err)
		}
		if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
			return fmt.Errorf("complete own job: %w", err)
		}
		// A second job has no successor, because the transaction that blocks the first
		// job may still be open. The subscription continues the work.
		if !more || isSecond(job.JobRow, job.Args) {
			return nil
		}
		_, err = client.InsertTx(ctx, tx, job.Args, nil)
		return problem.Doing(err, "insert successor")
	})
}
