package operator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/installation"
	"sexton/internal/listen"
	"sexton/internal/metrics"
	"sexton/internal/pace"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// lastRunsCap limits the search for the last run that did not fail.
const lastRunsCap = 10_000

// Gauges reads the values of a worker's metrics.
type Gauges struct {
	All *installation.Connections
	// Noted holds the parent tables of the definitions that the worker has resolved, by
	// database.
	Noted         *riverjobs.Bindings
	Subscriptions []*listen.Subscription
	Log           *slog.Logger
	// ReloadError returns the reason why the last reload was refused, or "". It is nil if
	// the worker does not reload its files.
	ReloadError func() string
}

// source returns all databases without their down marks, because each reading checks
// again which databases answer.
func (g *Gauges) source() components.Source {
	return Noted(&installation.Connections{Config: g.All.Config, Databases: g.All.Databases}, g.Noted)
}

// Read reads all databases in parallel. A database that does not answer has only the
// sample sexton_up, and does not delay the others.
func (g *Gauges) Read(ctx context.Context) []metrics.Sample {
	// Read the tables of the jobs database once. Only the samples that need them wait for
	// this reading.
	jobs := sync.OnceValues(func() (*counted, error) { return readCounted(ctx, g.All) })
	readings := make([]reading, 1+len(g.All.Databases))
	readings[0].addIf(metrics.ReloadFailed, g.ReloadError != nil && g.ReloadError() != "")
	var reading sync.WaitGroup
	for i, db := range g.All.Databases {
		reading.Go(func() { readings[1+i].read(ctx, g, db, jobs) })
	}
	reading.Wait()
	var samples []metrics.Sample
	for i := range readings {
		samples = append(samples, readings[i].samples...)
	}
	return samples
}

// reading collects the samples of one database, or of the process.
type reading struct{ samples []metrics.Sample }

func (r *reading) add(metric string, value float64, labels ...string) {
	r.samples = append(r.samples, metrics.Sample{Metric: metric, Value: value, Labels: labels})
}

func (r *reading) addIf(metric string, holds bool, labels ...string) {
	value := 0.0
	if holds {
		value = 1
	}
	r.add(metric, value, labels...)
}

func (r *reading) read(ctx context.Context, g *Gauges, db database.Database, jobs func() (*counted, error)) {
	usage, err := notifyQueueUsage(ctx, db)
	refusal := ""
	if err == nil {
		refusal, err = db.WriteRefusal(ctx)
	}
	r.addIf(metrics.Up, err == nil && refusal == "", db.Name)
	if err != nil {
		g.Log.DebugContext(ctx, "scrape_without_database", "database", db.Name, "error", err)
		return
	}
	r.add(metrics.NotifyQueueUsage, usage, db.Name)
	err = r.readDetails(ctx, g, db, jobs)
	if err != nil {
		g.Log.DebugContext(ctx, "scrape_incomplete", "database", db.Name, "error", err)
	}
	r.addIf(metrics.ScrapeComplete, err == nil, db.Name)
}

func (r *reading) readDetails(
	ctx context.Context, g *Gauges, db database.Database, jobs func() (*counted, error),
) error {
	r.listeners(g.Subscriptions, db)
	// A role without access to pg_stat_replication never has the samples of replicas.
	if replicas, err := pace.ReadReplicas(ctx, db.Pool); err == nil {
		for _, standby := range replicas {
			r.add(metrics.ReplicaLag, standby.Lag.Seconds(), db.Name, standby.Name)
			r.add(metrics.ReplicaLagBytes, float64(standby.Bytes), db.Name, standby.Name)
		}
	}
	tables, err := components.Backlogs(ctx, g.source(), db)
	if err != nil {
		return err
	}
	for _, table := range tables {
		r.backlog(table)
	}
	shared, err := jobs()
	if err != nil {
		return err
	}
	if db.Name == g.All.Jobs().Name {
		r.queues(shared)
	}
	states, err := shared.jobs(ctx, g.source().Connections, []string{db.Name}, tables)
	for _, state := range states {
		r.job(state, shared)
	}
	return err
}

// notifyQueueUsage returns the used share of the notification queue. It is the first
// query to a database, because it is cheap and shows whether the database answers.
func notifyQueueUsage(ctx context.Context, db database.Database) (usage float64, err error) {
	err = db.Pool.QueryRow(ctx, "SELECT pg_catalog.pg_notification_queue_usage()").Scan(&usage)
	return usage, problem.Doing(err, "read usage of the notification queue")
}

func (r *reading) listeners(subscriptions []*listen.Subscription, db database.Database) {
	for _, subscription := range subscriptions {
		if subscription.Database != db.Name {
			continue
		}
		connected, deaf := subscription.Connected(), subscription.Polls()
		r.addIf(metrics.Listener, connected && !deaf, subscription.Kind, db.Name, "listening")
		r.addIf(metrics.Listener, connected && deaf, subscription.Kind, db.Name, "polling")
		r.addIf(metrics.Listener, !connected, subscription.Kind, db.Name, "disconnected")
	}
}

func (r *reading) backlog(t components.Backlog) {
	r.add(metrics.BacklogRows, float64(t.Pending), t.Database, t.Table)
	r.addIf(metrics.BacklogCapped, t.Capped, t.Database, t.Table)
	r.add(metrics.BacklogOldest, t.OldestAgeSeconds, t.Database, t.Table)
	r.add(metrics.BacklogDeferred, float64(t.Deferred), t.Database, t.Table)
	r.add(metrics.BacklogConfirming, float64(t.Confirming), t.Database, t.Table)
	r.add(metrics.BacklogUndefined, float64(len(t.Undefined)), t.Database, t.Table)
	for _, p := range t.Parents {
		r.add(metrics.ParentRows, float64(p.Pending), t.Database, p.Parent)
		r.add(metrics.ParentOldest, p.OldestAgeSeconds, t.Database, p.Parent)
	}
	if t.GivenUp != nil {
		r.add(metrics.BacklogGivenUp, float64(*t.GivenUp), t.Database, t.Table)
	}
	r.samples = append(r.samples, components.Gauges(t)...)
}

func (r *reading) queues(shared *counted) {
	r.add(metrics.Workers, float64(len(shared.workers)))
	for i, row := range shared.queues {
		if i == 0 || row.Queue != shared.queues[i-1].Queue {
			r.addIf(metrics.Paused, row.Paused, row.Queue)
		}
		r.add(metrics.QueueJobs, float64(row.Jobs), row.Queue, row.State)
	}
}

func (r *reading) job(state JobState, shared *counted) {
	for _, class := range WaitClasses() {
		r.addIf(metrics.Waiting, state.class == class, state.Kind, state.Database, string(class))
	}
	r.addIf(metrics.Running, state.Running != nil, state.Kind, state.Database)
	if state.Running != nil {
		if duty := state.Running.Duty(); duty.Percent > 0 {
			r.add(metrics.Duty, float64(duty.Percent)/100, state.Kind, state.Database)
		}
	}
	success := shared.successes.last(state.Kind, state.Database)
	r.add(metrics.LastSuccess, success, state.Kind, state.Database)
	if due, scheduled := successDue(state.Job, state.Database,
		cmp.Or(success, shared.since(state, time.Now()))); scheduled {
		r.add(metrics.SuccessDue, due, state.Kind, state.Database)
	}
}

// runsKept is the time for which the history keeps runs.
const runsKept = 7 * 24 * time.Hour

// since returns the earliest time, in Unix seconds, at which a job without a successful
// run could have succeeded, or 0 if it is unknown. The time is the creation of the job's
// queue and not the start of this worker: a worker that restarts every day would never
// report a missed daily run.
func (s *counted) since(state JobState, now time.Time) float64 {
	for _, queue := range s.queues {
		if queue.Queue == state.Queue && queue.Since != nil {
			return float64(max(queue.Since.Unix(), now.Add(-runsKept).Unix()))
		}
	}
	return 0
}

// successDue returns the time of the third tick of this database after the last success,
// in Unix seconds. It counts ticks because the intervals of a schedule may differ. It
// returns 0 if success is 0 or the kind has no ticks.
func successDue(job riverjobs.Job, database string, success float64) (due float64, scheduled bool) {
	if job.Inserted() {
		return 0, false
	}
	cron, err := job.Cron.Parse()
	if err != nil || success == 0 {
		return 0, false
	}
	const ticks = 3
	times := riverjobs.Rotate(cron, slices.Index(job.Databases, database), len(job.Databases))
	tick := time.Unix(int64(success), 0).UTC()
	for range ticks {
		if tick = times.Next(tick); tick.IsZero() {
			return 0, false
		}
	}
	return float64(tick.Unix()), true
}

// counted holds the data of the jobs database that only metrics use.
type counted struct {
	*shared

	// queues has one row per queue and job state, ordered by queue.
	queues    []dbsqlc.QueueStatesRow
	successes successes
}

func readCounted(ctx context.Context, all *installation.Connections) (*counted, error) {
	known, err := readShared(ctx, all)
	if err != nil {
		return nil, err
	}
	c := counted{shared: known}
	// Each kind has one queue, which has the name of the kind.
	if c.queues, err = all.Jobs().Queries().QueueStates(ctx, components.PendingCap, all.Kinds()); err != nil {
		return nil, fmt.Errorf("read queues: %w", err)
	}
	c.successes, err = readSuccesses(ctx, all)
	return &c, err
}

// successes are the last runs that did not fail, per kind and database.
type successes []dbsqlc.RunsLastSuccessRow

func readSuccesses(ctx context.Context, all *installation.Connections) (successes, error) {
	found, err := all.Jobs().Queries().RunsLastSuccess(ctx, all.Kinds(), all.Config.DatabaseNames(), lastRunsCap)
	return found, problem.Doing(err, "read last successes")
}

// last returns the end of the last run of a kind that did not fail, in Unix seconds, or
// 0.
func (s successes) last(kind, name string) float64 {
	for _, success := range s {
		if success.Kind == kind && success.Database == name {
			return success.EndedEpoch
		}
	}
	return 0
}
