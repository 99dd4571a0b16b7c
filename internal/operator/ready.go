package operator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sexton/internal/dbsqlc"
	"sexton/internal/doctor"
	"sexton/internal/each"
	"sexton/internal/heartbeat"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
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
	// grants are by the place of the database; none where watchGrants was not called.
	grants []*web.Cached[[]string]
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
			reasons := r.reasons(ctx, i, schema)
			if r.grants != nil {
				reasons = append(reasons, r.grants[i].Get(ctx)...)
			}
			result.Databases[i] = web.DatabaseState{Name: schema.Name, Required: schema.Jobs, Reasons: reasons}
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
	err := r.all.Databases[at].Ping(ctx)
	if err == nil {
		err = migrate.Check(ctx, schema)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return []string{"database " + schema.Name + " does not answer in time"}
	case err != nil:
		return []string{err.Error()}
	}
	var reasons []string
	for _, subscription := range r.Subscriptions {
		if subscription.Database == schema.Name && !subscription.Connected() {
			reasons = append(reasons, "the listener of "+subscription.Kind+" has no connection")
		}
	}
	return reasons
}

const (
	// grantsFor is for how long a look at the role's rights is shared: it asks the catalogue about some sixty objects.
	grantsFor     = 30 * time.Second
	grantsTimeout = 2 * time.Second
	// grantsShown is how many of them are reasons of their own.
	grantsShown = 3
)

// grantsOf are the rights that a worker needs, with the names that doctor reads them by.
func grantsOf(schema migrate.Database) string {
	schema.JobsSchema, schema.TrackedSchema = "sexton", "public"
	return migrate.Grants(schema)
}

// WatchGrants prepares the look at the rights of each database's role. Parents are by the name of their database.
func (r *Readiness) WatchGrants(parents map[string][]*loosefk.Parent) {
	r.grants = nil
	for at, schema := range r.all.Schemas() {
		r.grants = append(r.grants, &web.Cached[[]string]{Timeout: grantsTimeout, Keep: grantsFor, Read: func(ctx context.Context) []string {
			lost, err := lostGrants(ctx, r.all, at, grantsOf(schema), parents)
			if err != nil {
				// What keeps a database from answering is found beside this.
				return nil
			}
			if more := len(lost) - grantsShown; more > 0 {
				lost = append(lost[:grantsShown], fmt.Sprintf("%d more rights are missing: sexton doctor names them", more))
			}
			return lost
		}})
	}
}

// lostGrants says which rights the role of one database lacks for Sexton's own tables and for the tables that it cleans up, each with its GRANT.
func lostGrants(ctx context.Context, all *installation.Connections, at int, grants string, parents map[string][]*loosefk.Parent) ([]string, error) {
	db := all.Databases[at]
	own, err := doctor.Target{Database: db, Grants: grants}.MissingRights(ctx)
	if err != nil {
		return nil, err
	}
	lost := each.Of(own, func(finding doctor.Finding) string { return fmt.Sprintf("%s (%s)", finding.Message, finding.Fix) })
	unreadable, err := loosefk.UnreadableParents(ctx, db.Pool, parents[db.Name])
	if err != nil {
		return nil, err
	}
	missing, err := installation.ChildPrivileges(ctx, db, parents)
	if err != nil {
		return nil, err
	}
	for _, p := range append(unreadable, missing...) {
		sentence := fmt.Sprintf("%s (%s)", p.Message, p.Fix)
		if p.Position.File == "" {
			sentence = p.Key + ": " + sentence
		}
		if !slices.Contains(lost, sentence) {
			lost = append(lost, sentence)
		}
	}
	return lost, nil
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
