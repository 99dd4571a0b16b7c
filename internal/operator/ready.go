package operator

import (
	"context"
	"sync"
	"time"

	"sexton/internal/heartbeat"
	"sexton/internal/installation"
	"sexton/internal/listen"
	"sexton/internal/migrate"
	"sexton/internal/recent"
	"sexton/internal/web"
)

// Readiness reports whether a worker can do its work.
type Readiness struct {
	all   *installation.Connections
	Lanes []*listen.Lane
	heart *heartbeat.Heart
	// stopping ends when the worker is asked to stop.
	stopping context.Context //nolint:containedctx // the process's, beside that of each check
	late     *recent.Value[map[string][]string]
	// grants are by the place of the database; none where watchGrants was not called.
	grants []*recent.Value[[]string]
}

// NewReadiness is the readiness of a worker that is asked to stop when the context ends.
func NewReadiness(stopping context.Context, all *installation.Connections, lanes []*listen.Lane, heart *heartbeat.Heart) *Readiness {
	r := &Readiness{all: all, Lanes: lanes, heart: heart, stopping: stopping}
	started := time.Now()
	r.late = &recent.Value[map[string][]string]{Timeout: lateTimeout, Keep: lateFor, Read: func(ctx context.Context) map[string][]string {
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
	for _, lane := range r.Lanes {
		if lane.Database == schema.Name && !lane.Connected() {
			reasons = append(reasons, "the listener of "+lane.Kind+" has no connection")
		}
	}
	return reasons
}
