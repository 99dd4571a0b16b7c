package operator

import (
	"context"
	"fmt"
	"sync"

	"sexton/internal/heartbeat"
	"sexton/internal/installation"
	"sexton/internal/listen"
	"sexton/internal/migrate"
	"sexton/internal/web"
)

// Readiness reports whether a worker can work.
type Readiness struct {
	all           *installation.Connections
	Subscriptions []*listen.Subscription
	heart         *heartbeat.Heart
	// stopping is canceled when the worker must stop.
	stopping context.Context //nolint:containedctx // the context of the process, not of one check
}

// NewReadiness returns the readiness of a worker that stops when the context is canceled.
func NewReadiness(stopping context.Context, all *installation.Connections, subscriptions []*listen.Subscription,
	heart *heartbeat.Heart,
) *Readiness {
	return &Readiness{all: all, Subscriptions: subscriptions, heart: heart, stopping: stopping}
}

// Check checks all databases in parallel. The worker is not ready if the jobs database
// has a problem. Problems of other databases are reported, but the worker is still ready.
func (r *Readiness) Check(ctx context.Context) web.Readiness {
	result := web.Readiness{Databases: make([]web.DatabaseState, len(r.all.Databases))}
	var checking sync.WaitGroup
	for i, schema := range r.all.Schemas() {
		checking.Go(func() {
			reasons := r.reasons(ctx, i, schema)
			result.Databases[i] = web.DatabaseState{
				Name: schema.Name, Required: schema.Jobs, Reasons: reasons,
				Ready: len(reasons) == 0,
			}
		})
	}
	checking.Wait()
	if r.stopping.Err() != nil {
		result.Reasons = append(result.Reasons, "the worker is stopping")
	}
	if !r.heart.Alive() {
		result.Reasons = append(result.Reasons,
			"its last heartbeats failed, so other workers consider it dead")
	}
	result.Ready = len(result.Reasons) == 0
	for _, db := range result.Databases {
		result.Ready = result.Ready && (db.Ready || !db.Required)
	}
	return result
}

// reasons returns the problems of one database.
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
