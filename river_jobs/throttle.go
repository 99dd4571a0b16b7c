package riverjobs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"sexton/internal/batch"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/replica"
)

// askTimeout bounds a question on another connection. A pool that has none to spare must not hold up a pass.
const askTimeout = time.Second

// clearFor is how long the answer that no replica is too far behind serves the passes that come after: as long as
// it serves the pass that asked.
const clearFor = time.Second

// throttle makes one pass wait for others and says so in the log, once for each whom it waits for.
type throttle struct {
	// places are the databases that the pass writes to, its own first.
	places []*throttled
	limits replica.Limits
	log    *slog.Logger
	// hidden reports whether it is the first time in this process that a database's replicas hide their state.
	hidden func(database string) bool
	// bindings remember between passes when no replica was behind.
	bindings *Bindings
	blocker  string
}

// throttled is one database that a pass writes to.
type throttled struct {
	db      database.Database
	session *batch.Session
	// blind is set when the replicas could not be asked: the rest of the pass goes on without.
	blind   bool
	replica string
}

// newThrottle returns the throttle of a pass. Replicas count for the pace adaptive alone.
func newThrottle(
	deps Deps, kind string, pace config.Pace, db database.Database, session *batch.Session, elsewhere map[string]loosefk.Elsewhere,
) *throttle {
	t := &throttle{
		places: []*throttled{{db: db, session: session}}, log: deps.Logger.With("kind", kind, "database", db.Name),
		bindings: deps.Bindings,
		hidden:   func(database string) bool { return deps.Bindings.first("hidden replicas of " + database) },
	}
	for _, other := range deps.Databases {
		if there := elsewhere[other.Name]; there.Session != nil {
			t.places = append(t.places, &throttled{db: other, session: there.Session})
		}
	}
	if pace == config.Adaptive {
		settings := deps.Config.Jobs
		t.limits = replica.Limits{Lag: settings.ReplicaLag, Bytes: int64(settings.ReplicaLagBytes)}
	}
	return t
}

// hooks are what the engine asks.
func (t *throttle) hooks() loosefk.Throttle {
	hooks := loosefk.Throttle{Blocker: t.blockedBy}
	if t.limits.On() {
		hooks.Hold = t.hold
	}
	return hooks
}

// hold says which replica is too far behind. Where that cannot be told, the pass does not wait.
func (t *throttle) hold(ctx context.Context) string {
	for _, place := range t.places {
		if reason := t.holdFor(ctx, place); reason != "" {
			return reason
		}
	}
	return ""
}

func (t *throttle) holdFor(ctx context.Context, place *throttled) string {
	if place.blind || t.bindings.clearSince(place.db.Name) < clearFor {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	replicas, err := replica.Read(ctx, place.db.Pool)
	if err != nil {
		place.blind = true
		if !errors.Is(err, replica.ErrHidden) || t.hidden(place.db.Name) {
			t.log.WarnContext(ctx, "pass does not wait for replicas", "of", place.db.Name, "error", err)
		}
		return ""
	}
	worst, behind := t.limits.Worst(replicas)
	if !behind {
		place.replica = ""
		t.bindings.noteClear(place.db.Name)
		return ""
	}
	reason := t.limits.Describe(worst)
	if worst.Name != place.replica {
		place.replica = worst.Name
		t.log.InfoContext(ctx, "pass waits", "reason", reason)
	}
	return reason
}

// clearSince is how long ago no replica of a database was too far behind.
func (b *Bindings) clearSince(name string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.clear[name])
}

func (b *Bindings) noteClear(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clear == nil {
		b.clear = map[string]time.Time{}
	}
	b.clear[name] = time.Now()
}

// blockedBy says whom a batch in a database waits for. A question that is on its way when the batch ends is not broken off,
// which would cost its connection.
func (t *throttle) blockedBy(ctx context.Context, name string) string {
	at := slices.IndexFunc(t.places, func(place *throttled) bool { return place.db.Name == name })
	if at < 0 {
		return ""
	}
	place := t.places[at]
	conn, err := place.db.Pool.Acquire(ctx)
	if err != nil {
		return "" // The batch has ended, or will say itself what is wrong with the server.
	}
	defer conn.Release()
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	reason, err := place.session.Blocker(asking, conn)
	if err != nil {
		t.log.DebugContext(ctx, "blocker is unknown", "error", err)
		return ""
	}
	if reason != "" && reason != t.blocker && ctx.Err() == nil {
		t.blocker = reason
		t.log.InfoContext(ctx, "pass waits", "reason", reason)
	}
	return reason
}

// reporter hands on the statistics of a running pass: at once where what it waits for has changed.
func reporter(progress jobrun.Progress) func(context.Context, *loosefk.Stats) {
	said := ""
	return func(ctx context.Context, stats *loosefk.Stats) {
		changed := stats.WaitingFor != said
		said = stats.WaitingFor
		progress(ctx, stats, changed)
	}
}
