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

// kind declares one kind of jobs, whose arguments are of type T. Its file says what is
// its own; all kinds share what is here.
//
// A kind with a schedule has a pass per tick or wake-up, and goes on while something is
// due. A kind without one has a job per item, which another kind inserts, and goes on
// until the item is done.
type kind[T river.JobArgs] struct {
	Job

	// argsOf are the arguments of a pass for a database; nil: none.
	argsOf func(database string) T
	bounds func(T) bounds
	// pass does the work. Beside statistics an error still fails the pass.
	pass func(context.Context, *pass, T) (jobrun.Result, error)

	// ended, if set, learns how a pass ended, of one too that could not begin.
	ended func(context.Context, *pass, jobrun.Report, error)

	// due is the one predicate of a kind with a schedule: whether there is work for it
	// now, and in how long the next falls due.
	due predicate
	// rest, if set, is how long wake-ups leave the kind alone, since it has failed.
	rest func(ctx context.Context, deps Deps, db database.Database) (time.Duration, error)
	// before, if set, is how long a job waits before it begins at all.
	before func(Deps) time.Duration
}

// predicate looks at a database on a connection. With fresh it relies on nothing that it
// remembers.
type predicate func(ctx context.Context, deps Deps, on listen.Querier, db database.Database, fresh bool) (listen.Due,
	error)

// bounds are the limits that a pass runs in.
type bounds struct {
	// database is the configured name of the one that it serves; empty: the jobs
	// database.
	database string
	// lease is the key of its lease, and ttl the length. Without a key a pass must be
	// safe beside another one of the same item.
	lease string
	ttl   time.Duration
	// timeout is when River ends the job; 0: after maxJobTime; negative: never.
	timeout time.Duration
	// long reports that a pass may take hours, as long as it gets on.
	long bool
}

// longer is how much longer leases and jobs last if statements may take longer than by
// default.
func longer(c *config.Config) time.Duration { return lease.Extension(c.Jobs.StatementTimeout) }

// pass is one pass at work.
type pass struct {
	Deps

	db       database.Database
	granted  *lease.Lease
	progress jobrun.Progress
	log      *slog.Logger
	// job is nil in the foreground.
	job *rivertype.JobRow

	// later is set by a pass whose job has to come back after that time, which costs no
	// attempt.
	later time.Duration
	// pauses is how often the job has been put off by putOff.
	pauses int
	// cuts is how often the job has lost its connection.
	cuts int
	// holder is set by a pass that waits for another process.
	holder string
}

// session opens a connection of the pass. Durable transactions wait until a standby or
// the disk has them.
func (p *pass) session(ctx context.Context, durable bool) (*batch.Session, func(), error) {
	conn, err := p.db.Pool.Acquire(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to database %s: %w", p.db.Name, err)
	}
	limits := p.timeouts()
	limits.Durable = durable
	return &batch.Session{Conn: conn.Conn(), Names: p.db.Names, Fence: p.granted, Limits: limits}, conn.Release, nil
}

// throttle has the pass wait for replicas and locks of its database.
func (p *pass) throttle(session *batch.Session, duty config.Duty) pace.Throttle {
	limits := pace.ReplicaLimits{Lag: p.Config.Jobs.ReplicaLag, Bytes: int64(p.Config.Jobs.ReplicaLagBytes)}
	return pace.NewServerThrottle(p.log, &p.Bindings.servers, limits,
		pace.Target{DB: p.db, Session: session}).Throttle(duty.Fixed())
}

// output is kept in a job's row.
type output struct {
	jobrun.Report

	Pauses int `json:"pauses,omitempty"`
	Cuts   int `json:"cuts,omitempty"`
}

// mostCuts is how many lost connections cost a job no attempt. More of them may be the
// work of its own statements: one that crashes the server, or one that a pooler never
// lets end.
const mostCuts = 20

// passOf is a pass of a job that may have been worked on before.
func passOf(deps Deps, job *rivertype.JobRow) *pass {
	var before struct {
		Output output `json:"output"`
	}
	_ = json.Unmarshal(job.Metadata, &before) // What is not there is 0.
	return &pass{Deps: deps, job: job, pauses: max(before.Output.Pauses, 0), cuts: max(before.Output.Cuts, 0)}
}

// putOff has the job come back after a pause that grows each time. Whatever else River
// calls a snooze does not count: a stop, a lock, another's work on the same.
func (p *pass) putOff() {
	p.later = pauseAfter(p.pauses)
	p.pauses++
}

// snoozes is how often the job has been put off without an attempt, as River counts it.
func (p *pass) snoozes() int {
	var counted struct {
		Snoozes int `json:"snoozes"`
	}
	if p.job != nil {
		_ = json.Unmarshal(p.job.Metadata, &counted) // What is not there is 0.
	}
	return max(counted.Snoozes, 0)
}

// once are the options of jobs of which only one waits or runs for the same arguments.
// `completed` is not among the states: what falls due afterwards needs a new one.
func once(kind string, attempts int) river.InsertOpts {
	return river.InsertOpts{Queue: kind, MaxAttempts: attempts, UniqueOpts: river.UniqueOpts{
		ByArgs: true,
		ByState: []rivertype.JobState{
			rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning,
			rivertype.JobStateRetryable, rivertype.JobStateScheduled,
		},
	}}
}

// job completes the declaration with what all kinds have in common.
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

// subscription wakes the kind up in one database.
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
			if k.rest != nil {
				if left, err := k.rest(ctx, deps, db); left > 0 || err != nil {
					return left, err
				}
			}
			if jobs := deps.jobsDB(); db.Name != jobs.Name || db.Sessions != jobs.Async() {
				on = jobs.Async()
			}
			return workThroughRiver(ctx, deps, on, job, k.args(db.Name), wait)
		},
	}
}

// foreground runs a pass outside River.
func (k kind[T]) foreground(ctx context.Context, deps Deps, of Pass) (jobrun.Report, error) {
	args := k.args(of.Database)
	if k.due != nil {
		if served := cmp.Or(k.bounds(args).database, deps.jobsDB().Name); of.Database != served {
			return jobrun.Report{}, fmt.Errorf("run %s: it works in the jobs database, which is %s", args.Kind(),
				served)
		}
	} else if err := json.Unmarshal(of.Args, &args); err != nil {
		return jobrun.Report{}, fmt.Errorf("read arguments of %s: %w", args.Kind(), err)
	}
	return k.run(ctx, &pass{Deps: deps}, args)
}

// recheck checks the kind's configuration again if it did not fit the database before.
func (k kind[T]) recheck(ctx context.Context, p *pass, args T) error {
	if k.Check == nil || !p.Bindings.isWrong(args.Kind(), p.db.Name) {
		return nil
	}
	found, err := k.Check(ctx, p.Config, p.db)
	return cmp.Or(err, p.fits(ctx, args.Kind(), p.db, found))
}

// run runs one pass: under its lease, where it has one.
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
	if k.ended != nil {
		k.ended(ctx, p, report, err)
	}
	return report, err
}

// worker works on the jobs of one kind.
type worker[T river.JobArgs] struct {
	river.WorkerDefaults[T]

	deps Deps
	kind kind[T]
}

// Timeout is the kind's: mostly the length of its lease, under which all writing ends.
func (w *worker[T]) Timeout(job *river.Job[T]) time.Duration { return w.kind.bounds(job.Args).timeout }

// Work runs one pass and ends the job. It goes on in a successor where something is left.
// A lease that is taken, a lock that others hold, mostCuts lost connections, a stop and
// whatever the pass puts off cost no attempt.
func (w *worker[T]) Work(ctx context.Context, job *river.Job[T]) error {
	if w.kind.before != nil {
		if wait := w.kind.before(w.deps); wait > 0 {
			return river.JobSnooze(wait)
		}
	}
	stopping, cancel := w.deps.untilStopped(ctx)
	defer cancel()
	p := passOf(w.deps, job.JobRow)
	report, err := w.kind.run(stopping, p, job.Args)
	f := batch.Judge(err)
	// What a deadline of the job itself has broken off looks like a lost connection.
	cut := f.Verdict == batch.Fatal && database.Lost(err) && ctx.Err() == nil && stopping.Err() == nil
	if cut {
		p.cuts++
	}
	kept := output{report, p.pauses, p.cuts}
	kept.Stats = nil // They are in the history, and a job's row is written anew at each change of its state.
	if err := river.RecordOutput(ctx, kept); err != nil {
		return fmt.Errorf("record output: %w", err)
	}
	item := w.kind.due == nil
	switch {
	case err != nil && stopping.Err() != nil && ctx.Err() == nil:
		return river.JobSnooze(0) // Asked to stop before it could begin.
	case p.later > 0:
		return river.JobSnooze(p.later)
	case item && (f.Lock() || cut && p.cuts <= mostCuts):
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
			return false, nil // The holder of the lease does the work, and looks again at its end.
		}
		var on listen.Querier = tx
		if p.db.Name != w.deps.jobsDB().Name {
			on = p.db.Async() // This look comes after the lock on the job, too, as it has to.
		}
		due, err := w.kind.due(ctx, w.deps, on, p.db, false)
		return due.Now, err
	})
}

// finish ends a unique job without losing what came in meanwhile. River goes on calling a
// job running for a quarter of a second after its Work has returned, and skips a second
// one for as long. So the job completes itself, in a transaction that first locks its
// row: an insert that came before has its work committed, and the look at due sees it;
// one that comes later waits for the row and finds the key free. Where something is due,
// the successor is inserted here.
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
			// This worker was taken for dead and the job given to another one, which will
			// finish it.
			return nil
		}
		more, err := due(ctx, tx)
		if err != nil {
			return fmt.Errorf("look what is due: %w", err)
		}
		if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
			return fmt.Errorf("complete own job: %w", err)
		}
		// One that is there beside another has no successor: the transaction in the way
		// may still be there. The subscription goes on.
		if !more || besides(job.JobRow, job.Args) {
			return nil
		}
		_, err = client.InsertTx(ctx, tx, job.Args, nil)
		return problem.Doing(err, "insert successor")
	})
}
