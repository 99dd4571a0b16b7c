package operator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sexton/internal/dbsqlc"
	"sexton/internal/heartbeat"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/listen"
	"sexton/internal/migrate"
	"sexton/internal/web"
	riverjobs "sexton/river_jobs"
)

// Readiness reports whether a worker can do its work.
type Readiness struct {
	all           *installation.Connections
	Subscriptions []*listen.Subscription
	heart         *heartbeat.Heart
	// stopping ends when the worker is asked to stop.
	stopping context.Context //nolint:containedctx // the process's, beside that of each check
	late     *web.Cached[map[string][]string]
}

// NewReadiness is the readiness of a worker that is asked to stop when the context ends.
func NewReadiness(stopping context.Context, all *installation.Connections, subscriptions []*listen.Subscription, heart *heartbeat.Heart) *Readiness {
	r := &Readiness{all: all, Subscriptions: subscriptions, heart: heart, stopping: stopping}
	started := time.Now()
	r.late = &web.Cached[map[string][]string]{Timeout: lateTimeout, Keep: lateFor, Read: func(ctx context.Context) map[string][]string {
		late, err := lateJobs(ctx, all, started, time.Now())
		if err != nil {
			// What keeps the jobs database from answering is found beside this; a wrong alarm is of no use.
			return nil
		}
		return late
	}}
	return r
}

// Check looks at all databases at a time. Without the jobs' own database nothing works; another one that is in
// trouble is named and delays only itself.
func (r *Readiness) Check(ctx context.Context) web.Readiness {
	result := web.Readiness{Databases: make([]web.DatabaseState, len(r.all.Databases))}
	var checking sync.WaitGroup
	for i, schema := range r.all.Schemas() {
		checking.Go(func() {
			result.Databases[i] = web.DatabaseState{Name: schema.Name, Required: schema.Jobs, Reasons: r.reasons(ctx, i, schema)}
		})
	}
	var late map[string][]string
	checking.Go(func() { late = r.late.Get(ctx) })
	checking.Wait()
	for i := range result.Databases {
		db := &result.Databases[i]
		db.Reasons = append(db.Reasons, late[db.Name]...)
		db.Ready = len(db.Reasons) == 0
	}
	if r.stopping.Err() != nil {
		result.Reasons = append(result.Reasons, "the worker stops")
	}
	if !r.heart.Alive() {
		result.Reasons = append(result.Reasons, "no heartbeat got through lately, so other workers take this one for dead")
	}
	result.Ready = len(result.Reasons) == 0
	for _, db := range result.Databases {
		result.Ready = result.Ready && (db.Ready || !db.Required)
	}
	return result
}

// reasons say what is wrong with one database; nil where nothing is.
func (r *Readiness) reasons(ctx context.Context, at int, schema migrate.Database) []string {
	db, refusal := r.all.Databases[at], ""
	err := db.Ping(ctx)
	if err == nil {
		err = migrate.Check(ctx, schema)
	}
	if err == nil {
		refusal, err = db.WriteRefusal(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return []string{"database " + schema.Name + " does not answer in time"}
	case err != nil:
		return []string{err.Error()}
	}
	var reasons []string
	if refusal != "" {
		reasons = append(reasons, readOnly(schema.Name, refusal))
	}
	for _, subscription := range r.Subscriptions {
		if subscription.Database == schema.Name && !subscription.Connected() {
			reasons = append(reasons, "the listener of "+subscription.Kind+" has no connection")
		}
	}
	return reasons
}

func readOnly(database, refusal string) string {
	return fmt.Sprintf("database %s accepts no writes: %s", database, refusal)
}

// grantsOf are the rights that a worker needs, with the names that doctor reads them by.
func grantsOf(schema migrate.Database) string {
	schema.TrackedSchema = "public"
	return migrate.Grants(schema)
}

const (
	// lateAfter is how long after the third tick without a success a job is late. The alert SextonNoSuccess waits as long.
	lateAfter = 5 * time.Minute
	// lateFor is for how long a look for late jobs is shared: a probe may come every second.
	lateFor     = 10 * time.Second
	lateTimeout = 2 * time.Second
)

// lateJobs say by database which jobs had no success for too long, in any process. Paused ones are not late, nor jobs that have
// not run yet.
func lateJobs(ctx context.Context, all *installation.Connections, started, now time.Time) (map[string][]string, error) {
	runs, err := readRuns(ctx, all)
	if err != nil {
		return nil, err
	}
	known, err := readSuccesses(ctx, all)
	if err != nil {
		return nil, err
	}
	paused, err := installation.Pauses(ctx, all)
	if err != nil {
		return nil, err
	}
	late := map[string][]string{}
	for _, job := range riverjobs.Jobs(all.Config) {
		for _, name := range job.Databases {
			for _, last := range runs {
				if last.Kind != job.Kind || last.Database != name || paused[job.Queue] != "" {
					continue
				}
				if reason := lateness(job, last, known.last(job.Kind, name), started, now); reason != "" {
					late[name] = append(late[name], reason)
				}
			}
		}
	}
	return late, nil
}

// lateness says that a job is late, given its last run and when the last success ended, in seconds of the epoch and 0 where there is none.
func lateness(job riverjobs.Job, last dbsqlc.RunsLastRow, success float64, started, now time.Time) string {
	due, scheduled := successDue(job, last.Database, success)
	switch {
	case success == 0 && !job.Inserted():
		failed := last.Outcome != nil && *last.Outcome == string(jobrun.Failed)
		if failed && now.Sub(started) > lateAfter { // A new worker may well mend it with its first run.
			return job.Kind + " has had no success yet; its last run failed"
		}
	case scheduled && now.After(time.Unix(int64(due), 0).Add(lateAfter)):
		return fmt.Sprintf("%s had its last success at %s, more than three ticks of its schedule ago",
			job.Kind, time.Unix(int64(success), 0).UTC().Format(time.RFC3339))
	}
	return ""
}
